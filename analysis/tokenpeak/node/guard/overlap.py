"""Production that somebody starts while a trial has the node: noticed, noted, and a reason to give the node back.

The sampler of the trial looks each second, as long as an engine is recorded. Whoever gives the node back ends the
engine first, so production that runs while the same engine is still recorded was started by somebody else. So was one
that has ended again, as it does where the engine has its memory, but had a start after the one that the trial ended.
"""

from __future__ import annotations

import time

from tokenpeak.node.guard import record as records
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.production.managers import make_manager

FILE = "overlap.json"
PERIOD_S = 1.0
_SHARE = 0.2
"""The part of the time that may go into looking: a manager whose answer takes long is asked more seldom."""


def watch(state: State) -> None:
    """Look at production until the engine has gone, or production was found started, which is noted."""
    while state.has("engine.json"):
        began = time.monotonic()
        try:
            if _is_found(state):
                return
        except (ScriptError, OSError):
            # A manager that does not answer, or a full disk: the next look may do better.
            pass
        took_s = time.monotonic() - began
        time.sleep(max(PERIOD_S - took_s, took_s / _SHARE))


def _is_found(state: State) -> bool:
    record, engine = records.read(state), state.read("engine.json")
    if record is None or engine is None or record["production"]["manager"] == "none":
        return False
    manager = make_manager(record["production"]["declared"], state)
    is_found = manager.was_started(record["last_start"]) if "last_start" in record else manager.is_running()
    if not is_found:
        return False
    if records.read(state) != record or state.read("engine.json") != engine:
        return False
    noted = {name: record[name] for name in ("nonce", "trial_id", "holder")}
    state.write(FILE, {**noted, "at_unix_s": time.time()}, durable=False)
    return True


def noted(state: State, record: Json) -> Json | None:
    """The note of this record's trial; None when nothing was."""
    note = state.read(FILE)
    same = note and all(note.get(name) == record.get(name) for name in ("nonce", "trial_id"))
    return note if same else None
