"""Drift of production's definition: what was recorded is compared with what is there when the node is given back."""

from __future__ import annotations

import time

from tokenpeak.node import memory
from tokenpeak.node.engine.command import checksum
from tokenpeak.node.guard import record as records
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.phases import Phases
from tokenpeak.node.probe import boards
from tokenpeak.node.production import drain
from tokenpeak.node.production.managers import definition_of, recorded_manager
from tokenpeak.node.production.managers.base import Definition, Manager


def recorded_definition(manager: Manager) -> Json:
    """What a record keeps of the definition of production that runs; no checksum where that has none to be read."""
    try:
        definition = definition_of(manager)
        described = definition.describe()
    except (ScriptError, OSError):
        return {"definition_sha256": None}
    kept = {"described": described} if definition.is_removable else {}
    return {"definition_sha256": checksum(described), **kept}


def make_again(manager: Manager, recorded: Json) -> None:
    """Make recorded production anew where its manager's object was removed while it was stopped."""
    if described := recorded.get("described"):
        definition_of(manager).make_again(described, recorded)


def definition_drift(manager: Manager, was_sha256: str, since: str) -> str:
    """What is to be said of the definition; empty where it is what it was when `since` began."""
    try:
        is_same = checksum(definition_of(manager).describe()) == was_sha256
    except (ScriptError, OSError) as error:
        return f"Its definition cannot be compared with what it was: {error}"
    return "" if is_same else f"Somebody else has changed its definition since {since} began."


def drift_of_production(recorded: Json, state: State) -> str:
    """What is to be said of the definition of recorded production that runs again; empty where it was not read."""
    was_sha256 = recorded.get("definition_sha256")
    if not recorded["running"] or was_sha256 is None:
        return ""
    try:
        return definition_drift(recorded_manager(recorded, state), was_sha256, "the trial")
    except ScriptError as error:
        return f"Its definition cannot be compared with what it was: {error}"


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
        definition = definition_of(manager)
        # Before anything is stopped: what serves by the new definition is better than nothing.
        own = definition.way_back(record)
        if _is(definition, own) and manager.is_running():
            return None
        _leave(state, record, phases)
        if not definition.is_loaded():
            definition.write(own)
        if definition.is_there():
            with phases.span("production_stop"):
                note_stop(record)
                stop_for_change(manager)
        with phases.span("memory_wait"):
            memory.wait_level(memory.make_gauge(boards.chosen_for_trial(state)))
        with phases.span("changing"):
            definition.write(own)
        if not _is(definition, own):
            return f"Production's definition ({definition.place(own)}) is not what it was before the apply."
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


def drift_since_apply(state: State, record: Json) -> str:
    """What the definition has that the one before the apply had not, though nothing of ours; empty where nothing."""
    try:
        manager = recorded_manager(record["production"], state)
    except ScriptError as error:
        return f"Its definition cannot be compared with what it was: {error}"
    return definition_drift(manager, record["apply"]["was_sha256"], "the apply")


def _clean_up(state: State, record: Json) -> None:
    """Remove what the change left beside the definition, where that can be done; the next apply tries again."""
    apply = record["apply"]
    try:
        kept = [] if apply["confirmed"] and apply["undo"] else [apply["was"]["own"]]
        applied = None if apply["confirmed"] else state.read(APPLIED)
        kept += [applied["apply"]["was"]["own"]] if applied else []
        definition_of(recorded_manager(record["production"], state)).clean(kept)
    except (ScriptError, OSError):
        return


def _is(definition: Definition, own: Json) -> bool:
    try:
        return bool(definition.describe()["own"] == own)
    except ScriptError:
        # systemd has not read a file again, say: what would be started is not known.
        return False


def _leave(state: State, record: Json, phases: Phases) -> None:
    """Take what serves by the other definition out of the balancer; what runs there may end."""
    try:
        found = drain.drain_of(record.get("drain"), record["production"]["declared"], state)
    except ScriptError:
        return
    if found is not None and record.get("drained"):
        with phases.span("draining"):
            found.leave_at_once(record["drained"])


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
