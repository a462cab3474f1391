"""Giving the node back: the one way, whoever asks (the playbook, `make restore`, or the guard).

Everything comes from the record alone. Doing it again changes nothing.
"""

from __future__ import annotations

import os
import time

from tokenpeak.node import clock, lock, memory, production, telemetry
from tokenpeak.node.engine import Engine
from tokenpeak.node.phases import Phases
from tokenpeak.node.protocol import RestoreRequest
from tokenpeak.node.state import Json, State
from tokenpeak.node.trouble import Trouble

RECORD = "record.json"
OUTCOME = "outcome.json"


def stop_engine(state: State, phases: Phases, grace_s: float, baseline_bytes: int | None) -> Json:
    """End the engine and wait until its memory is free: engine_stopped, and what is left if it is not."""
    engine = Engine(state)
    there = state.read("engine.json") is not None
    telemetry.stop(state)
    if not there:
        return {"engine_stopped": True, "message": ""}
    with phases.span("engine_stop"):
        left = engine.stop(grace_s)
    with phases.span("memory_wait"):
        level = memory.wait_level(memory.make_gauge(), baseline_bytes)
    message = f"The engine's processes {left} do not end, not even by SIGKILL. " if left else ""
    if not level.is_level:
        message += f"Memory in use did not come to rest within {level.waited_s:.0f} s ({level.used_bytes} bytes)."
    return {"engine_stopped": not left, "message": message.strip()}


def restore(state: State, phases: Phases, by: str, ready_s: float | None = None, grace_s: float | None = None) -> Json:
    """Make the node as it was recorded; call it with the state's mutex held.

    Answers restored, was_running, model, downtime_s, message and trial_id. The record goes only when all is well.
    """
    record = state.read(RECORD)
    if record is None:
        stop_engine(state, phases, grace_s or 5.0, None)
        return {
            "restored": True,
            "was_running": False,
            "model": None,
            "downtime_s": None,
            "message": "No trial has this node.",
            "trial_id": None,
        }
    os.environ.update(record.get("environment", {}))
    was = record["production"]
    ended = stop_engine(state, phases, grace_s or record["engine_stop_s"], record.get("baseline_bytes"))
    with phases.span("production_start", "production_start"):
        wrong = production.bring_back(was, state, ready_s or record["production_ready_s"], phases)
    outcome = {
        "restored": wrong is None and ended["engine_stopped"],
        "was_running": was["running"],
        "model": was["model"],
        "downtime_s": _downtime_s(record) if was["running"] else None,
        "message": " ".join(text for text in (ended["message"], wrong or _told(was)) if text),
        "trial_id": record["trial_id"],
    }
    try:
        state.write(OUTCOME, {**outcome, "holder": record["holder"], "by": by, "at_unix_s": time.time()})
    except OSError as error:
        # A full disk: production is what counts, and taking the record away needs no room.
        outcome["message"] += f" That could not be written down: {error.strerror}."
    if outcome["restored"]:
        state.remove(RECORD)
        phases.mark("restored")
    return outcome


def _told(was: Json) -> str:
    if was["manager"] == "none":
        return "This node has no production."
    if not was["running"]:
        return "Production was down before and was left down."
    if was["model"]:
        return f"Production answers a real completion by {was['model']}."
    return "Production runs; it has no url to be asked at."


def _downtime_s(record: Json) -> float | None:
    """From the beginning of production's stop to now; by the date when the machine was booted in between."""
    stopped = record.get("stopped")
    if not stopped:
        return 0.0
    if stopped["boot_id"] == clock.boot_id():
        return round(clock.boot_s() - float(stopped["boot_s"]), 3)
    return round(max(0.0, time.time() - float(stopped["unix_s"])), 3)


def left_alone(state: State) -> Json:
    """The answer where somebody else has the node: there is nothing to give back but what is theirs."""
    held, record = state.read(lock.FILE), state.read(RECORD)
    who = f"Trial {record['trial_id']} of {record['holder']}" if record else str((held or {}).get("holder"))
    return {
        "restored": True,
        "was_running": False,
        "model": None,
        "downtime_s": None,
        "message": f"{who} has the node; it was left alone.",
    }


def restore_command(state: State, declaration: Json, request: RestoreRequest) -> Json:
    """`make restore`: give the node back now, and break the lock; for a `holder`, only if nobody else has it."""
    phases = Phases(state)
    holder = request.holder
    with state.exclusive():
        if holder and lock.is_of_another(state, holder):
            return {"phases": phases.spans, "restoration": left_alone(state)}
        outcome = restore(state, phases, by="restore")
        if outcome["restored"]:
            lock.release(state)
    if outcome["trial_id"] is None:
        outcome["message"] += " " + _told_of_free_node(state, declaration)
    return {"phases": phases.spans, "restoration": outcome}


def _told_of_free_node(state: State, declaration: Json) -> str:
    """How production stands where there was nothing to give back, and who gave it back last."""
    try:
        found = production.look(declaration.get("production") or {"manager": "none"}, state)
    except Trouble as trouble:
        return trouble.text
    name = " ".join(word for word in (found["manager"], found["unit"]) if word)
    if found["manager"] == "none":
        said = "It has no production."
    elif not found["running"]:
        said = f"Production ({name}) does not run, and no trial stopped it: start it as usual if it should."
    elif found["url"] and not found["model"]:
        said = f"Production ({name}) runs but does not answer at {found['url']} (yet)."
    else:
        said = f"Production ({name}) runs{' and serves ' + found['model'] if found['model'] else ''}."
    last = state.read(OUTCOME)
    if last and last["restored"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(last["at_unix_s"]))
        said += f" It was given back last by {last['by']}, {when}."
    return said
