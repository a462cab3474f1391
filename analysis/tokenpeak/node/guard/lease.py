"""Lease of the node: who has it, and until when.

One sweep at a time has the node, and the lock names it. It gives itself back when its holder's heartbeats stop. Of a
sweep's controllers only the newest generation works here: each command carries its claim, `{sweep_id, generation}`, and
the node keeps the highest generation of each sweep that was ever resumed, so that a controller that was thought dead
and wakes up stops and launches nothing. A person who gives the node back from a sweep that lives holds it.
"""

from __future__ import annotations

import math
import time

from tokenpeak.node.guard import record as records
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError, remedy
from tokenpeak.node.machine.state import Json, State, UnreadableError
from tokenpeak.node.protocol.field import SECONDS_MAX
from tokenpeak.node.protocol.requests import LEASE_MAX_S

FILE = "lease.json"
_AHEAD_S = 1.0
"""A heartbeat may be written while its lease is looked at, and none was later than now by more."""
LOCK_FILE = "lock.json"
SERVED = "served"
"""Of the lock: what production served when the sweep was last seen to find it running."""
HOLD_FILE = "hold.json"
HELD = "held"
_LATEST_UNIX_S = 1e11
INVENTORY = "--inventory NAME"
"""For the controller's inventory, whose name the node does not know."""
RELEASE = f"`tokenpeak restore --release {INVENTORY}`"
GENERATIONS_FILE = "generations.json"
FENCED = "fenced"
_MOST_SWEEPS = 500
"""Whoever may run trials cannot fill the disk with claims."""
_MOST_STEPS = 1000
"""By which a generation may rise: controllers may have resumed while this node was not reached, but nobody may take all
generations at once, after which none would be left to resume the sweep with."""
_FIRST_GENERATION = 1
"""The generation of the controller that began the sweep: there is one, so that no node needs to note it."""


def typed_for(words: str, inventory_name: str) -> str:
    """These words with the inventory's name in commands to type."""
    return words.replace(INVENTORY, f"--inventory {inventory_name}")


def renew(state: State, lease_s: float | None, holder: str) -> None:
    """`holder` was heard of now; `lease_s` None: no further heartbeat is needed."""
    now = {"boot_id": clock.boot_id(), "renewed_boot_s": clock.boot_s()}
    state.write(FILE, {**now, "lease_s": lease_s, "holder": holder}, durable=False)


def remaining_s(state: State) -> float | None:
    """Seconds until the lease lapses, negative when it has; None when it never does.

    A reboot ends every lease, and so does whatever makes its file unreadable.
    """
    renewed = state.read(FILE) or {}
    if renewed.get("boot_id") != clock.boot_id():
        return -1.0
    if renewed.get("lease_s", 0) is None:
        return None
    try:
        renewed_s, lease_s = float(renewed["renewed_boot_s"]), float(renewed["lease_s"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return -1.0
    left_s = renewed_s + lease_s - clock.boot_s()
    # A file without a checksum, of an older script, may hold numbers that `renew` never writes.
    is_possible = math.isfinite(left_s) and 0 < lease_s <= SECONDS_MAX and left_s <= lease_s + _AHEAD_S
    return left_s if is_possible else -1.0


def has_lapsed(state: State) -> bool:
    """Whether the controller has been silent for too long."""
    left_s = remaining_s(state)
    return left_s is not None and left_s <= 0


def take_lock(state: State, holder: str, sweep_id: str | None = None) -> None:
    """Take the node for `holder`, who may hold it already, or whose sweep an older controller held it for.

    A holder who was not heard of within its lease and left nothing to restore has lost it.
    """
    held = state.read(LOCK_FILE) or {}
    if _is_other(held, holder, sweep_id) and (state.has(records.NAME) or not has_lapsed(state)):
        since = clock.date_of(held.get("taken_at_unix_s", 0))
        raise ScriptError(
            "locked",
            f"The node is held by {held['holder']} since {since}: wait until that sweep has ended, "
            f"or run {RELEASE} to break the lock and give the node back.",
        )
    if held.get("holder") != holder:
        taken = {"holder": holder, "sweep_id": sweep_id, "taken_at_unix_s": time.time()}
        noted = {} if _is_other(held, holder, sweep_id) or SERVED not in held else {SERVED: held[SERVED]}
        state.write(LOCK_FILE, {**taken, **noted})


def note_served(state: State, model: str | None) -> None:
    """Note that production was seen to run while this sweep has the node, and its model."""
    held = state.read(LOCK_FILE)
    served = {"running": True, "model": model}
    if held is not None and held.get(SERVED) != served:
        state.write(LOCK_FILE, {**held, SERVED: served})


def served(state: State, holder: str | None, sweep_id: str | None, at_start: Json | None) -> Json | None:
    """Production as it is to be again, `{running, model}`, though it has ended since: only what this node itself saw.

    None where the sweep of `holder` does not have the node, or does not say by `at_start` that production ran: an
    administrator may have stopped it, and of what it served the word of a request is no witness.
    """
    if not at_start or not at_start["running"] or not is_had_by(state, holder, sweep_id):
        return None
    noted = (state.read(LOCK_FILE) or {}).get(SERVED)
    return noted if isinstance(noted, dict) and {"running", "model"} <= noted.keys() else None


def is_had_by(state: State, holder: str | None, sweep_id: str | None = None) -> bool:
    """Whether the sweep of `holder` has the node, or had it a moment ago: at its end it renews no lease any more."""
    held, last = state.read(LOCK_FILE), state.read(FILE) or {}
    if held is None or holder is None or _is_other(held, holder, sweep_id) or last.get("boot_id") != clock.boot_id():
        return False
    left_s = remaining_s(state)
    return left_s is None or left_s > -LEASE_MAX_S


def is_of_another(state: State, holder: str, sweep_id: str | None = None) -> bool:
    """Whether somebody else than `holder` has the node; the fence has refused who is older in the same sweep."""
    noted = (state.read(LOCK_FILE), records.read_if_possible(state))
    return any(held is not None and _is_other(held, holder, sweep_id) for held in noted)


def _is_other(held: Json, holder: str, sweep_id: str | None) -> bool:
    is_same_sweep = sweep_id is not None and held.get("sweep_id") == sweep_id
    return held.get("holder", holder) != holder and not is_same_sweep


def release_lock(state: State) -> None:
    """Let go of the node, whoever held it; a lock that a broken disk keeps goes with its holder's lease."""
    state.remove_if_possible(LOCK_FILE)


def is_had_by_living_sweep(state: State) -> bool:
    """Whether a sweep that lives has the node, in a trial or between two."""
    record = records.read_if_possible(state)
    has_apply = record is not None and "apply" in record
    return (state.has(records.NAME) or state.has(LOCK_FILE)) and not has_lapsed(state) and not has_apply


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


def refuse_older(state: State, claim: Json | None, holder: str | None) -> None:
    """Raise ScriptError where a newer controller of the same sweep was here, or another one of this generation."""
    if claim is None:
        return
    newest = _newest_controllers(state).get(claim["sweep_id"])
    if newest is None or claim["generation"] > newest["generation"] or newest["holder"] == holder:
        return
    since = clock.date_of(newest["at_unix_s"])
    raise ScriptError(
        FENCED,
        f"Since {since} this sweep is carried on by {newest['holder']}: generation {claim['generation']} may do "
        "nothing here any more.",
    )


def note_generation(state: State, claim: Json | None, holder: str | None) -> None:
    """Refuse an older generation, and note a newer one for good; call it with the state's mutex held."""
    refuse_older(state, claim, holder)
    if claim is None or claim["generation"] == _FIRST_GENERATION:
        return
    newest_of = _newest_controllers(state)
    before = newest_of.get(claim["sweep_id"], {})
    if before.get("holder") == holder:
        return
    most = before.get("generation", _FIRST_GENERATION) + _MOST_STEPS
    if claim["generation"] > most:
        raise ScriptError(
            "request",
            f"The claim has the generation {claim['generation']}, and of this sweep at most {most} may be the next "
            "here: resume the sweep anew, by `tokenpeak sweep --resume`.",
        )
    newest = {"generation": claim["generation"], "holder": holder, "at_unix_s": time.time()}
    others = sorted(
        (each for each in newest_of.items() if each[0] != claim["sweep_id"]), key=lambda each: each[1]["at_unix_s"]
    )
    state.write(GENERATIONS_FILE, {**dict(others[-_MOST_SWEEPS:]), claim["sweep_id"]: newest})


def generations(state: State) -> dict[str, int]:
    """The highest generation of each resumed sweep that was here."""
    return {sweep: int(newest["generation"]) for sweep, newest in _newest_controllers(state).items()}


def _newest_controllers(state: State) -> Json:
    """The note of each sweep; nothing where neither copy can be read, which must keep no production away."""
    try:
        return state.read(GENERATIONS_FILE) or {}
    except UnreadableError:
        return {}
