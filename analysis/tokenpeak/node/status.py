"""What a node serves now, who has it, and whether a guard is armed."""

from __future__ import annotations

from tokenpeak.node import guard, lease, lock, phases, production
from tokenpeak.node import record as records
from tokenpeak.node.engine import Engine
from tokenpeak.node.restore import OUTCOME
from tokenpeak.node.state import Json, State, Unreadable
from tokenpeak.node.trouble import Trouble


def status(state: State, declaration: Json) -> Json:
    """production, engine, armed, lease_remaining_s, holder, trial_id, phase, last_restoration; changes nothing."""
    held = state.read(lock.FILE)
    unreadable: str | None = None
    record: Json | None = None
    try:
        record = records.read(state)
    except Unreadable as error:
        unreadable = error.text
    try:
        found: Json | None
        found, problem = production.look_closely(declaration.get("production") or {"manager": "none"}, state)
    except Trouble as trouble:
        found, problem = None, trouble.text
    return {
        "production": found,
        "problem": unreadable or problem,
        "engine": Engine(state).recorded(),
        "armed": state.has(records.NAME),
        "guard_alive": record is not None and guard.is_armed(state, record["nonce"]),
        "lease_remaining_s": lease.remaining_s(state) if record is not None else None,
        "holder": (held or {}).get("holder"),
        "trial_id": record["trial_id"] if record else None,
        "secret": record.get("secret") if record else None,
        "phase": phases.now(state),
        "last_restoration": state.read(OUTCOME),
    }
