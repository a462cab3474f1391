"""Giving the node back: the one way, whoever asks (the playbook, `tokenpeak restore`, or the guard).

Everything comes from the record alone; where that cannot be read, production is started as it is declared. First the
engine is ended and production started, then what can be written down is written down: the disk may be full, or
read-only after an error. Doing it again changes nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

from tokenpeak.node.engine.engine import Engine
from tokenpeak.node.guard import lease, mutex, overlap
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, root_files
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.state import DECLARATION, Json, State, UnreadableError
from tokenpeak.node.probe import chosen_boards, facts, meters
from tokenpeak.node.production import drain, production, put_back
from tokenpeak.node.production.answering import Shortfall, is_restored
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.protocol.answers import RestoreAnswer
from tokenpeak.node.protocol.parts import LEFT_DOWN, RestoreOutcome, picked
from tokenpeak.node.protocol.requests import ENGINE_STOP_S, PRODUCTION_READY_S, RestoreRequest, sweep_of

UNKNOWN_STOP_S = 10.0
"""How long an engine may take to end where no record says; production has waited long enough."""


def stop_engine(state: State, phases: Phases, grace_s: float, baseline_bytes: int | None) -> Json:
    """End the engine and wait until its memory is free: engine_stopped, and what is left if it is not."""
    engine = Engine(state)
    meters.stop(state)
    if not engine.is_known():
        root_files.cut_log(engine.log)
        return {"engine_stopped": True, "message": ""}
    with phases.span("engine_stop"):
        left = engine.stop(grace_s)
    # Production may need the room.
    root_files.cut_log(engine.log)
    with phases.span("memory_wait"):
        level = facts.wait_level(facts.make_gauge(chosen_boards.chosen_for_trial(state)), baseline_bytes)
    message = f"The engine's processes {left} do not end, not even by SIGKILL. " if left else ""
    if not level.is_level:
        message += f"Memory in use did not come to rest within {level.waited_s:.0f} s ({level.used_bytes} bytes)."
    return {"engine_stopped": not left, "message": message.strip()}


def restore(
    state: State,
    phases: Phases,
    by: str,
    ready_s: float | None = None,
    grace_s: float | None = None,
    at_start: Json | None = None,
    accept: bool = False,
) -> RestoreOutcome:
    """Make the node as it was recorded, or as it was `at_start` of the sweep; call it with the state's mutex held.

    With `accept` production may serve another model than it was recorded with. The record goes only when all is well.
    """
    try:
        record = records.read(state)
    except UnreadableError as error:
        return _restore_as_declared(state, phases, by, error.text)
    if record is None:
        stop_engine(state, phases, grace_s or ENGINE_STOP_S, None)
        if at_start and at_start["running"]:
            return _started_again(state, phases, at_start["model"], ready_s or PRODUCTION_READY_S)
        return RestoreOutcome(restored=True, was_running=False, message="No trial has this node.")
    os.environ.update(record.get("environment", {}))
    was = {**record["production"], "model": None} if accept else record["production"]
    is_started_anew = not was["running"] and overlap.noted(state, record) is not None
    ended = stop_engine(state, phases, grace_s or record["engine_stop_s"], record.get("baseline_bytes"))
    apply = record.get("apply")
    text = put_back.put_back(state, record, phases) if apply and not apply["confirmed"] else None
    wrong = Shortfall(text) if text else None
    if wrong is None:
        with phases.span("production_start", "production_start"):
            wrong = production.bring_back(was, state, ready_s or record["production_ready_s"], phases)
    if wrong is None and record.get("drained"):
        with phases.span("rejoining"):
            text = drain.rejoin_recorded(record, state)
        wrong = Shortfall(text) if text else None
    if accept and wrong is None:
        was["model"] = _served_model(was, state)
    was_sha256 = was.get("definition_sha256") if was["running"] and not apply and wrong is None else None
    drifted = put_back.drift(was, state, was_sha256, "the trial") if was_sha256 else ""
    account = wrong.words(was["model"]) if wrong else _sentence(was, is_started_anew)
    beside = "" if wrong or not was["running"] else production.strangers(was, state)
    outcome = RestoreOutcome(
        restored=is_restored(wrong, engine_stopped=ended["engine_stopped"]),
        was_running=was["running"],
        model=was["model"],
        downtime_s=_downtime_s(state, record) if was["running"] else None,
        message=" ".join(text for text in (ended["message"], account, beside, drifted) if text),
        trial_id=record["trial_id"],
        holder=record["holder"],
        by=by,
        definition="changed" if drifted else None,
    )
    return _noted(state, phases, _of_apply(state, outcome, record) if apply else outcome, record)


def _served_model(was: Json, state: State) -> str | None:
    """The model that production serves now; None where it names none."""
    try:
        return production.look(was["declared"], state)[0].model
    except ScriptError:
        return None


def _of_apply(state: State, outcome: RestoreOutcome, record: Json) -> RestoreOutcome:
    """The outcome of a restoration that ends an apply."""
    if record["apply"]["confirmed"]:
        outcome = replace(outcome, definition="confirmed")
        return _with(outcome, "The confirmed definition stays.") if outcome.restored else outcome
    if not outcome.restored:
        return outcome
    drifted = put_back.drift(record["production"], state, record["apply"]["was_sha256"], "the apply")
    definition = "changed" if drifted else "put_back"
    return replace(_with(outcome, drifted or "Its definition is what it was before the apply."), definition=definition)


def _started_again(state: State, phases: Phases, model: str | None, ready_s: float) -> RestoreOutcome:
    """Production that no trial has and that served when the sweep began: it serves, or is started again."""
    try:
        was = production.as_declared(state.declaration().get("production") or {}, state, model)
        was_running = make_manager(was["declared"], state).is_running()
        if was_running:
            was["model"] = model = None  # whoever runs it may have changed what it serves
        with phases.span("production_start", "production_start"):
            wrong = production.bring_back(was, state, ready_s, phases)
    except ScriptError as error:
        was_running, wrong = True, Shortfall(error.text, is_known=error.code != NOT_SEEN)
    message = "No trial has this node."
    if not was_running:
        message += " Production had ended by itself since the sweep began and was started again."
    message = f"{message} {wrong.words(model)}" if wrong else message
    return RestoreOutcome(restored=is_restored(wrong), was_running=True, model=model, message=message)


def _restore_as_declared(state: State, phases: Phases, by: str, unreadable: str) -> RestoreOutcome:
    """Start production as the inventory declares it, where there is a record that cannot be read."""
    ended = stop_engine(state, phases, UNKNOWN_STOP_S, None)
    model: str | None = None
    try:
        declared = state.declaration().get("production") or {"manager": "none"}
        with phases.span("production_start", "production_start"):
            was = production.as_declared(declared, state)
            wrong = production.bring_back(was, state, PRODUCTION_READY_S, phases)
            model = was["model"]
        if wrong is None and (text := drain.rejoin_declared(state)):
            wrong = Shortfall(text)
    except ScriptError as error:
        wrong = Shortfall(error.text, is_known=error.code != NOT_SEEN)
    outcome = RestoreOutcome(
        restored=is_restored(wrong, engine_stopped=ended["engine_stopped"]),
        was_running=True,
        model=model,
        message=f"{unreadable} What production was before the trial is not known, so it "
        + ("was started as declared." if wrong is None else f"is started as declared: {wrong.text}"),
        by=by,
    )
    return _noted(state, phases, outcome)


def _noted(state: State, phases: Phases, outcome: RestoreOutcome, record: Json | None = None) -> RestoreOutcome:
    """The outcome, written down as far as the disk allows; the record `found` goes when the node is given back."""
    outcome = replace(outcome, at_unix_s=time.time())
    refusal = records.note_outcome(state, vars(outcome), record["nonce"] if record else None)
    if refusal:
        outcome = _with(outcome, f"That could not be written down: {refusal}.")
    if outcome.restored:
        is_apply = record is not None and "apply" in record
        problem = put_back.conclude(state, record) if is_apply and record else state.remove_if_possible(records.NAME)
        if problem:
            outcome = _with(
                outcome, f"{problem}, so the guard goes on watching; mend the disk, then run `tokenpeak restore`."
            )
        else:
            phases.mark("restored")
    return outcome


def _with(outcome: RestoreOutcome, sentence: str) -> RestoreOutcome:
    return replace(outcome, message=f"{outcome.message} {sentence}")


def _sentence(was: Json, is_started_anew: bool) -> str:
    if was["manager"] == "none":
        return "This node has no production."
    if is_started_anew:
        return "Production was down before; somebody started it during the trial, and it was left so."
    if not was["running"]:
        return LEFT_DOWN
    if was["model"]:
        return f"Production answers a real completion by {was['model']}."
    return "Production runs; it has no url to be asked at."


def _downtime_s(state: State, record: Json) -> float | None:
    """From the beginning of production's stop to now; by the date when the machine was booted in between.

    Where it was given back already and the disk refused to note that, it is the time until then.
    """
    earlier = state.read_spare().get(records.SPARE) or {}
    if earlier.get("nonce") == record["nonce"] and earlier.get("downtime_s") is not None:
        return float(earlier["downtime_s"])
    stopped = record.get("stopped")
    if not stopped:
        return 0.0
    if stopped["boot_id"] == clock.boot_id():
        return round(clock.boot_s() - float(stopped["boot_s"]), 3)
    return round(max(0.0, time.time() - float(stopped["unix_s"])), 3)


def not_touched(state: State) -> RestoreOutcome:
    """The answer where somebody else has the node: there is nothing to give back but what is theirs."""
    held, record = state.read(lease.LOCK_FILE), records.read_if_possible(state)
    who = f"Trial {record['trial_id']} of {record['holder']}" if record else str((held or {}).get("holder"))
    return RestoreOutcome(restored=True, was_running=False, message=f"{who} has the node; it was not touched.")


def restore_command(state: State, request: RestoreRequest) -> RestoreAnswer:
    """`tokenpeak restore`: give the node back now, and break the lock; for a `holder`, only if nobody else has it.

    For a person, who names no holder, a command that does not go on is ended first.
    A sweep that lives does not get a node again that a person has given back, until a person releases it.
    """
    phases = Phases(state)
    holder = request.holder
    with mutex.exclusive(state, may_end=lambda: holder is None):
        try:
            lease.note_generation(state, request.claim, holder)
        except OSError:
            # A full disk keeps no production away; a launch needs room and is refused.
            lease.refuse_older(state, request.claim, holder)
        if holder and lease.is_of_another(state, holder, sweep_of(request.claim)):
            return RestoreAnswer(phases=phases.spans, restoration=not_touched(state))
        at_start = lease.served(state, holder, sweep_of(request.claim), request.production_at_start)
        before = records.outcome_of_holder(state, holder)
        is_had = holder is None and lease.is_had_by_living_sweep(state)
        outcome = restore(state, phases, by="restore", at_start=at_start, accept=request.accept)
        held = lease.release_hold(state) if request.release else lease.hold(state) if is_had else None
        if outcome.restored:
            lease.release_lock(state)
    if outcome.trial_id is None and not at_start:
        outcome = _of_free_node(state, outcome)
    if held:
        outcome = _with(outcome, held)
    last = picked(RestoreOutcome, before) if before else None
    return RestoreAnswer(phases=phases.spans, restoration=outcome, last_restoration=last)


def _of_free_node(state: State, outcome: RestoreOutcome) -> RestoreOutcome:
    """The outcome where there was nothing to give back, with how production stands, and who gave it back last.

    A node whose production nothing says is not said to have none.
    """
    problem = f"{state.path(DECLARATION)}, which says so, is gone."
    try:
        if state.has(DECLARATION):
            return _with(outcome, _free_node(state, state.declaration()))
    except ScriptError as error:
        problem = error.text
    text = f"Whether it has production is not known: {problem} Run `tokenpeak install`, which writes that file anew."
    return replace(_with(outcome, text), restored=None)


def _free_node(state: State, declaration: Json) -> str:
    try:
        current, _ = production.look(declaration.get("production") or {"manager": "none"}, state)
    except ScriptError as error:
        return f"How production stands is not known: {error.text}"
    name = " ".join(word for word in (current.manager, current.unit) if word)
    if current.manager == "none":
        account = "It has no production."
    elif not current.running:
        account = f"Production ({name}) does not run, and no trial stopped it: start it as usual if it should."
    elif current.url and not current.model:
        account = f"Production ({name}) runs but does not answer at {current.url} (yet)."
    else:
        account = f"Production ({name}) runs{' and serves ' + current.model if current.model else ''}."
    last = records.outcome_of_holder(state, None)
    if last and last.get("restored"):
        account += f" It was given back last by {last.get('by')}, {clock.date_of(last.get('at_unix_s'))}."
    return account
