"""One sweep at a time has the node; the lock names it."""

from __future__ import annotations

import time

from tokenpeak.node.guard import lease, record
from tokenpeak.node.guard import record as records
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError, remedy
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.protocol.requests import LEASE_MAX_S

FILE = "lock.json"
SERVED = "served"
"""Of the lock: what production served when the sweep was last seen to find it running."""


def take(state: State, holder: str, sweep_id: str | None = None) -> None:
    """Take the node for `holder`, who may hold it already, or whose sweep an older controller held it for.

    A holder who was not heard of within its lease and left nothing to restore has lost it.
    """
    held = state.read(FILE) or {}
    if _is_other(held, holder, sweep_id) and (state.has(record.NAME) or not lease.has_lapsed(state)):
        since = clock.date_of(held.get("taken_at_unix_s", 0))
        raise ScriptError(
            "locked",
            f"The node is held by {held['holder']} since {since}: wait until that sweep has ended, "
            "or run `tokenpeak restore --release` to break the lock and give the node back.",
        )
    if held.get("holder") != holder:
        taken = {"holder": holder, "sweep_id": sweep_id, "taken_at_unix_s": time.time()}
        noted = {} if _is_other(held, holder, sweep_id) or SERVED not in held else {SERVED: held[SERVED]}
        state.write(FILE, {**taken, **noted})


def note_served(state: State, model: str | None) -> None:
    """Note that production was seen to run while this sweep has the node, and its model."""
    held = state.read(FILE)
    served = {"running": True, "model": model}
    if held is not None and held.get(SERVED) != served:
        state.write(FILE, {**held, SERVED: served})


def served(state: State, holder: str | None, sweep_id: str | None, at_start: Json | None) -> Json | None:
    """Production as it is to be again, `{running, model}`, though it has ended since: only what this node itself saw.

    None where the sweep of `holder` does not have the node, or does not say by `at_start` that production ran: an
    administrator may have stopped it, and of what it served the word of a request is no witness.
    """
    if not at_start or not at_start["running"] or not is_had_by(state, holder, sweep_id):
        return None
    noted = (state.read(FILE) or {}).get(SERVED)
    return noted if isinstance(noted, dict) and {"running", "model"} <= noted.keys() else None


def is_had_by(state: State, holder: str | None, sweep_id: str | None = None) -> bool:
    """Whether the sweep of `holder` has the node, or had it a moment ago: at its end it renews no lease any more."""
    held, last = state.read(FILE), state.read(lease.FILE) or {}
    if held is None or holder is None or _is_other(held, holder, sweep_id) or last.get("boot_id") != clock.boot_id():
        return False
    left_s = lease.remaining_s(state)
    return left_s is None or left_s > -LEASE_MAX_S


def is_of_another(state: State, holder: str, sweep_id: str | None = None) -> bool:
    """Whether somebody else than `holder` has the node; the fence has refused who is older in the same sweep."""
    noted = (state.read(FILE), record.read_if_possible(state))
    return any(held is not None and _is_other(held, holder, sweep_id) for held in noted)


def _is_other(held: Json, holder: str, sweep_id: str | None) -> bool:
    is_same_sweep = sweep_id is not None and held.get("sweep_id") == sweep_id
    return held.get("holder", holder) != holder and not is_same_sweep


def release(state: State) -> None:
    """Let go of the node, whoever held it; a lock that a broken disk keeps goes with its holder's lease."""
    state.remove_if_possible(FILE)


HOLD_FILE = "hold.json"
HELD = "held"
_LATEST_UNIX_S = 1e11
RELEASE = "`tokenpeak restore --release`"


def is_had_by_living_sweep(state: State) -> bool:
    """Whether a sweep that lives has the node, in a trial or between two."""
    record = records.read_if_possible(state)
    has_apply = record is not None and "apply" in record
    return (state.has(records.NAME) or state.has(FILE)) and not lease.has_lapsed(state) and not has_apply


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
        f"The node was given back by `tokenpeak restore` at {clock.date_of(since)}, and is held for production: no "
        f"trial begins there. {RELEASE} releases it; then resume the sweep."
    )


def require_no_hold(state: State) -> None:
    """Raise ScriptError where the node is held."""
    if text := hold_problem(state):
        raise ScriptError(HELD, text)
