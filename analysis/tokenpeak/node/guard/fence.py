"""Fence of the node: of a sweep's controllers only the newest generation works here; an older one is refused.

Each command of a sweep carries its claim, `{sweep_id, generation}`. The node keeps the highest generation of each
sweep that was ever resumed, so that a controller that was thought dead and wakes up stops and launches nothing.
"""

from __future__ import annotations

import time

from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State, UnreadableError

FILE = "generations.json"
CODE = "fenced"
_MOST_SWEEPS = 500
"""Whoever may run trials cannot fill the disk with claims."""
_MOST_STEPS = 1000
"""By which a generation may rise: controllers may have resumed while this node was not reached, but nobody may take all
generations at once, after which none would be left to resume the sweep with."""
_FIRST = 1
"""The generation of the controller that began the sweep: there is one, so that no node needs to note it."""


def refuse_older(state: State, claim: Json | None, holder: str | None) -> None:
    """Raise ScriptError where a newer controller of the same sweep was here, or another one of this generation."""
    if claim is None:
        return
    newest = _known(state).get(claim["sweep_id"])
    if newest is None or claim["generation"] > newest["generation"] or newest["holder"] == holder:
        return
    since = clock.date_of(newest["at_unix_s"])
    raise ScriptError(
        CODE,
        f"Since {since} this sweep is carried on by {newest['holder']}: generation {claim['generation']} may do "
        "nothing here any more.",
    )


def enter(state: State, claim: Json | None, holder: str | None) -> None:
    """Refuse an older generation, and note a newer one for good; call it with the state's mutex held."""
    refuse_older(state, claim, holder)
    if claim is None or claim["generation"] == _FIRST:
        return
    newest_of = _known(state)
    before = newest_of.get(claim["sweep_id"], {})
    if before.get("holder") == holder:
        return
    most = before.get("generation", _FIRST) + _MOST_STEPS
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
    state.write(FILE, {**dict(others[-_MOST_SWEEPS:]), claim["sweep_id"]: newest})


def generations(state: State) -> dict[str, int]:
    """The highest generation of each resumed sweep that was here."""
    return {sweep: int(newest["generation"]) for sweep, newest in _known(state).items()}


def _known(state: State) -> Json:
    """The note of each sweep; nothing where neither copy can be read, which must keep no production away."""
    try:
        return state.read(FILE) or {}
    except UnreadableError:
        return {}
