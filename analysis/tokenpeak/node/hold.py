"""Hold on a node: a person gave it back from a sweep that lives, and no trial begins there until a person releases it.

A sweep that knew nothing of it would take the node again with its next trial. Applies are a person's too, and pass.
"""

from __future__ import annotations

import time

from tokenpeak.node import clock, lease, lock
from tokenpeak.node import record as records
from tokenpeak.node.error import ScriptError, remedy
from tokenpeak.node.state import State

HOLD_FILE = "hold.json"
HELD = "held"
_LATEST_UNIX_S = 1e11
RELEASE = "`make restore RELEASE=1`"


def is_had_by_living_sweep(state: State) -> bool:
    """Whether a sweep that lives has the node, in a trial or between two."""
    record = records.read_if_possible(state)
    has_apply = record is not None and "apply" in record
    return (state.has(records.NAME) or state.has(lock.FILE)) and not lease.has_lapsed(state) and not has_apply


def hold(state: State) -> str:
    """Hold the node; what came of it, in a sentence."""
    try:
        state.write(HOLD_FILE, {"at_unix_s": time.time()})
    except OSError as error:
        return f"It could not be held ({error.strerror}{remedy(error)}), so the sweep may take it again."
    return f"It is held: no trial begins here until {RELEASE}."


def release_hold(state: State) -> str | None:
    """Let sweeps have the node again; a sentence where it was held."""
    if not state.has(HOLD_FILE):
        return None
    return state.remove_if_possible(HOLD_FILE) or "It is released: sweeps may have it again."


def held_since_unix_s(state: State) -> float | None:
    """Since when the node is held; None where it is not. A hold that cannot be read is one."""
    if not state.has(HOLD_FILE):
        return None
    at_unix_s = (state.read(HOLD_FILE) or {}).get("at_unix_s")
    if isinstance(at_unix_s, (int, float)) and 0 <= at_unix_s <= _LATEST_UNIX_S:
        return float(at_unix_s)
    return 0.0


def hold_problem(state: State) -> str | None:
    """Why no trial may begin here, and what to do; None where one may."""
    since = held_since_unix_s(state)
    if since is None:
        return None
    return (
        f"The node was given back by `make restore` at {clock.date_of(since)}, and is held for production: no "
        f"trial begins there. {RELEASE} releases it; then resume the sweep."
    )


def require_no_hold(state: State) -> None:
    """Raise ScriptError where the node is held."""
    if text := hold_problem(state):
        raise ScriptError(HELD, text)
