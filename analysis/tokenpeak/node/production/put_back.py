"""Putting production's definition back: what an apply that was not confirmed changed is again what it was.

A definition is written only while production is stopped, so production that runs by the definition that was, was
started by it. One that its manager does not load is written before: nothing was started by it, and nothing is stopped.
"""

from __future__ import annotations

import time

from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.probe import chosen_boards, facts
from tokenpeak.node.production import drain
from tokenpeak.node.production.manager import Manager, checksum
from tokenpeak.node.production.managers import recorded_manager

APPLIED = "applied.json"
_STOPS = 3
"""How often production is stopped again that somebody starts before its definition is written."""


def put_back(state: State, record: Json, phases: Phases) -> str | None:
    """Make the definition what it was before the recorded apply; None when it is, otherwise what is wrong.

    Production is left stopped, unless it runs by that definition already. Doing it again changes nothing.
    """
    if not record["apply"]["touched"]:
        return None
    try:
        manager = recorded_manager(record["production"], state)
        # Before anything is stopped: what serves by the new definition is better than nothing.
        own = manager.way_back(record)
        if _is(manager, own) and manager.is_running():
            return None
        _leave(state, record, phases)
        if not manager.is_loaded():
            manager.write(own)
        if manager.is_there():
            with phases.span("production_stop"):
                note_stop(record)
                stop_for_change(manager)
        with phases.span("memory_wait"):
            facts.wait_level(facts.make_gauge(chosen_boards.chosen_for_trial(state)))
        with phases.span("changing"):
            manager.write(own)
        if not _is(manager, own):
            return f"Production's definition ({manager.place(own)}) is not what it was before the apply."
    except (ScriptError, OSError) as error:
        return f"Production's definition is not put back: {error}"
    return None


def stop_for_change(manager: Manager) -> None:
    """Stop production for as long as its definition is written; ScriptError where somebody starts it again."""
    for _ in range(_STOPS):
        manager.stop()
        if not manager.is_running():
            return
    raise ScriptError(
        "production", f"Production ({manager.unit or 'process'}) is started again whenever it is stopped."
    )


def note_stop(record: Json) -> None:
    """Note in the record that production is stopped now: an outage begins."""
    record["stopped"] = {"unix_s": time.time(), "boot_s": clock.boot_s(), "boot_id": clock.boot_id()}


def drift(production: Json, state: State, was_sha256: str, since: str) -> str:
    """A sentence on the definition of recorded production; empty where it is as it was when `since` began."""
    try:
        is_same = checksum(recorded_manager(production, state).describe()) == was_sha256
    except (ScriptError, OSError) as error:
        return f"Its definition cannot be compared with what it was: {error}"
    return "" if is_same else f"Somebody else has changed its definition since {since} began."


def _clean_up(state: State, record: Json) -> None:
    """Remove what the change left beside the definition, where that can be done; the next apply tries again."""
    apply = record["apply"]
    try:
        needed = [] if apply["confirmed"] and apply["undo"] else [apply["was"]["own"]]
        applied = None if apply["confirmed"] else state.read(APPLIED)
        needed += [applied["apply"]["was"]["own"]] if applied else []
        recorded_manager(record["production"], state).clean(needed)
    except (ScriptError, OSError):
        return


def _is(manager: Manager, own: Json) -> bool:
    try:
        return bool(manager.describe()["own"] == own)
    except ScriptError:
        # systemd has not read a file again, say: what would be started is not known.
        return False


def _leave(state: State, record: Json, phases: Phases) -> None:
    """Take what serves by the other definition out of the balancer; what runs there may end."""
    try:
        recorded_drain = drain.drain_of(record.get("drain"), record["production"]["declared"], state)
    except ScriptError:
        return
    if recorded_drain is not None and record.get("drained"):
        with phases.span("draining"):
            recorded_drain.leave_at_once(record["drained"])


def conclude(state: State, record: Json) -> str | None:
    """Let a record of an apply go: a confirmed one is kept for its rollback. None when it has, else why it cannot."""
    apply = record["apply"]
    is_kept = apply["confirmed"] and not apply["undo"]
    _clean_up(state, record)
    try:
        if is_kept:
            state.rename(records.NAME, APPLIED)
            return None
        if apply["confirmed"]:
            state.remove(APPLIED)
        state.remove(records.NAME)
    except OSError as error:
        return f"{state.path(records.NAME)} cannot be moved: {error.strerror}"
    return None
