"""Status: what a node serves now, who has it, and whether a guard is armed."""

from __future__ import annotations

from tokenpeak.node.engine.engine import Engine
from tokenpeak.node.guard import guard, lease
from tokenpeak.node.guard import record as records
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State, UnreadableError
from tokenpeak.node.production import production
from tokenpeak.node.protocol.answers import StatusAnswer
from tokenpeak.node.protocol.parts import Production, RestoreOutcome, picked


def status(state: State, declaration: Json) -> StatusAnswer:
    """How the node stands; changes nothing."""
    held = state.read(lease.LOCK_FILE)
    unreadable: str | None = None
    record: Json | None = None
    try:
        record = records.read(state)
    except UnreadableError as error:
        unreadable = error.text
    try:
        serving: Production | None
        serving, problem = production.look(declaration.get("production") or {"manager": "none"}, state)
    except ScriptError as error:
        serving, problem = None, error.text
    is_guarded = record is not None and guard.is_armed(state, record["nonce"])
    restorations = [picked(RestoreOutcome, known) for known in records.known_outcomes(state)]
    return StatusAnswer(
        production=serving,
        problem=" ".join(filter(None, (unreadable, problem, state.why_unwritable(), guard.why_masked(state)))) or None,
        engine=Engine(state).recorded(),
        armed=state.has(records.NAME),
        guard_alive=is_guarded,
        lease_remaining_s=lease.remaining_s(state) if record is not None else None,
        holder=(held or {}).get("holder"),
        trial_id=record["trial_id"] if record else None,
        drained=tuple(str(member) for member in (record or {}).get("drained") or ()),
        secret=record.get("secret") if record else None,
        generations=lease.generations(state),
        phase=records.current_phase(state),
        held_since_unix_s=lease.held_since_unix_s(state),
        last_restoration=restorations[0] if restorations else None,
        earlier_restorations=tuple(restorations[1:]),
    )
