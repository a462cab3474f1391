"""Change of production's definition by an apply: the node puts it back unless a confirmation comes in time.

The record is there before anything is touched, the guard watches it, and the controller holds a lease. What cannot be
done ends in the definition that was: here where something fails, by the guard where this process is gone.
"""

from __future__ import annotations

import time
from typing import Callable
from urllib.parse import urlsplit

from tokenpeak.node import rights
from tokenpeak.node.engine import serving
from tokenpeak.node.engine.builds import is_version
from tokenpeak.node.engine.launch import LEAST_ROOM_BYTES
from tokenpeak.node.engine.serving import ForeignServerError
from tokenpeak.node.guard import guard, lease, mutex
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_command, without_secrets
from tokenpeak.node.probe import chosen_boards, facts
from tokenpeak.node.production import drain, production
from tokenpeak.node.production.answering import Answering, OfProduction, standing
from tokenpeak.node.production.manager import Command, Manager, checksum, text
from tokenpeak.node.production.managers import make_manager, recorded_manager
from tokenpeak.node.production.put_back import APPLIED, conclude, note_stop, stop_for_change
from tokenpeak.node.production.restore import restore
from tokenpeak.node.protocol.answers import ChangeAnswer, ConfirmAnswer
from tokenpeak.node.protocol.parts import RestoreOutcome, picked
from tokenpeak.node.protocol.requests import ChangeRequest, ConfirmRequest

COMPLETIONS = 3
"""Real completions that the changed production must give, one after the other."""
NO_ENGINE_STOP_S = 1.0
_LOOK_S = 1.0
GIVEN_BACK = "The node has put production's definition back meanwhile."


def change(state: State, declaration: Json, request: ChangeRequest, *, limited: bool = False) -> ChangeAnswer:
    """Change the definition and verify it, for a restricted user where `limited`.

    Raises ScriptError where nothing was touched.
    """
    phases = Phases(state)
    with mutex.exclusive(state):
        record = _begin(state, declaration, request, phases, limited)
        try:
            record = _stop_and_write(state, record, phases)
        except (ScriptError, OSError) as error:
            return _failed(state, request, phases, record, str(error))
    nonce = record["nonce"]

    def over() -> str | None:
        current = records.read_if_possible(state)
        if current is None or current["nonce"] != nonce:
            return GIVEN_BACK
        return "The controller fell silent." if lease.has_lapsed(state) else None

    try:
        with phases.span("verifying"):
            version = _verify(state, record, request, over)
            if limited and (problem := rights.root_problem(recorded_manager(record["production"], state))):
                raise ScriptError("verify", problem)
        downtime_s = clock.boot_s() - float(record["stopped"]["boot_s"])
        state.write(records.NAME, record)
    except (ScriptError, OSError) as error:
        with mutex.exclusive(state):
            return _failed(state, request, phases, record, str(error))
    with mutex.exclusive(state):
        reason = over()
        if reason is None and record.get("drained"):
            with phases.span("rejoining"):
                reason = drain.rejoin_recorded(record, state)
        if reason is not None:
            return _failed(state, request, phases, record, reason)
        phases.mark("baking")
    return ChangeAnswer(
        changed=True,
        message="Production answers by its new definition, which waits to be confirmed.",
        phases=phases.spans,
        started_at_unix_s=phases.started_at_unix_s,
        was_sha256=record["apply"]["was_sha256"],
        new_sha256=record["apply"]["new_sha256"],
        was_text=record["apply"]["was_text"],
        new_text=record["apply"]["new_text"],
        engine_version=version,
        downtime_s=round(downtime_s, 3),
    )


def _begin(state: State, declaration: Json, request: ChangeRequest, phases: Phases, limited: bool) -> Json:
    """Lock, look, prepare, record, guard; the record. Raises ScriptError with nothing touched."""
    state.require_room(LEAST_ROOM_BYTES)
    lease.take_lock(state, request.holder)
    record: Json | None = None
    try:
        with phases.span("recording"):
            _give_back_what_is_due(state, phases)
            declared = declaration.get("production") or {"manager": "none"}
            recorded = production.record(declared, state)
            if not recorded["running"]:
                raise ScriptError("production_down", "Production does not run: start it as usual, then apply.")
            apply = _prepared(state, make_manager(declared, state), request, declaration if limited else None)
            record = {
                **records.new(recorded, declaration.get("drain"), request.production_ready_s, NO_ENGINE_STOP_S),
                "holder": request.holder,
                "trial_id": request.apply_id,
                "deadline_boot_s": clock.boot_s() + request.confirm_within_s,
                "gpus": chosen_boards.chosen_boards(declaration),
                "apply": apply,
            }
            lease.renew(state, request.lease_s, request.holder)
            state.write(records.NAME, record)
        with phases.span("arming"):
            guard.arm(state, record["nonce"])
    except (ScriptError, OSError):
        # Production was not touched yet, so nothing is left to restore.
        if record is not None and (records.read_if_possible(state) or {}).get("nonce") == record["nonce"]:
            state.remove_if_possible(records.NAME)
        if not state.has(records.NAME):
            lease.release_lock(state)
        raise
    return record


def _give_back_what_is_due(state: State, phases: Phases) -> None:
    record = records.read(state)
    if record is None:
        return
    if guard.is_due(state, record):
        outcome = restore(state, phases, by="change")
        if outcome.restored:
            return
        raise ScriptError(
            "production", f"After what had the node before, {standing(outcome.restored)}: {outcome.message}"
        )
    raise ScriptError(
        "locked",
        f"{record['trial_id']} of {record['holder']} has the node: wait until it has ended, or `tokenpeak restore`.",
    )


def _prepared(state: State, manager: Manager, request: ChangeRequest, permitted: Json | None) -> Json:
    """The part of the record that is the apply's: the definition as it is, and the new one, ready to be written.

    `permitted` is the declaration that limits a restricted user.
    """
    was = manager.describe()
    was_command = manager.command(was)
    if checksum(was) != request.was_sha256:
        raise ScriptError(
            "drifted", "Production's definition has changed since the change was shown: look at it again, then apply."
        )
    if request.edit is not None:
        command = manager.edited(was_command, request.edit)
        if permitted is not None:
            rights.require_permitted_change(permitted, manager, was, command)
        rights.require_own_program(manager, was, was_command, command)
        own = manager.prepared(was, command, request.apply_id)
        new_text = text(manager.place(own), command, manager.shown_words(command))
    else:
        applied = state.read(APPLIED)
        if applied is None:
            raise ScriptError("nothing_applied", "No apply was confirmed on this node, so there is nothing to undo.")
        if permitted is not None:
            rights.require_permitted_rollback(manager, was, applied)
        own, new_text = applied["apply"]["was"]["own"], applied["apply"]["was_text"]
        command = manager.command(applied["apply"]["was"])
        manager.prepare_back(own)
    return {
        "id": request.apply_id,
        "was": was,
        "was_sha256": checksum(was),
        "was_text": text(manager.place(was["own"]), was_command, manager.shown_words(was_command)),
        "new": own,
        "new_sha256": None,
        "new_text": new_text,
        "words": manager.shown_words(command),
        "program": command.program,
        "env": {name: value for name, value in command.env.items() if was_command.env.get(name) != value},
        "env_gone": [name for name in was_command.env if name not in command.env],
        "undo": request.edit is None,
        "touched": False,
        "confirmed": False,
    }


def _stop_and_write(state: State, record: Json, phases: Phases) -> Json:
    """Leave the balancer, stop, write the definition, start; the record, with the checksum of what is there now."""
    record = drain.take_out(state, record, phases)
    note_stop(record)
    # From here on whoever gives the node back writes the definition that was.
    record = {**record, "apply": {**record["apply"], "touched": True}}
    state.write(records.NAME, record)
    manager = recorded_manager(record["production"], state)
    with phases.span("production_stop"):
        stop_for_change(manager)
    with phases.span("memory_wait"):
        facts.wait_level(facts.make_gauge(chosen_boards.chosen_for_trial(state)))
    with phases.span("changing"):
        manager.write(record["apply"]["new"])
        described = manager.describe()
        command = manager.command(described)
        _require_same(record["apply"], command, manager.shown_words(command))
        started = manager.start_facts(record["production"]["definition"])
        apply = {**record["apply"], "new_sha256": checksum(described), "new_definition": started}
        record = {**record, "apply": apply}
        state.write(records.NAME, record)
    with phases.span("production_start", "production_start"):
        # supervisord has started it, as it does when it reads a program anew.
        if not manager.is_running():
            production.start(manager, started)
    apply = {**apply, "last_start": manager.last_start()}
    return {**record, "apply": apply}


def _require_same(apply: Json, command: Command, words: list[str]) -> None:
    """Raise ScriptError unless the manager would start exactly what was shown."""
    differs = any(command.env.get(name) != value for name, value in apply["env"].items())
    if words != apply["words"] or differs or any(name in command.env for name in apply["env_gone"]):
        raise ScriptError(
            "definition",
            f"The manager would start {shown_command(words)} and not {shown_command(apply['words'])}.",
        )


def _verify(state: State, record: Json, request: ChangeRequest, over: Callable[[], str | None]) -> str | None:
    """The version that the changed production reports, once it has given real completions; ScriptError otherwise."""
    recorded = changed_production(record)
    manager = recorded_manager(recorded, state)
    looked_s = 0.0

    def over_or_again() -> str | None:
        nonlocal looked_s
        if time.monotonic() - looked_s < _LOOK_S:
            return None
        looked_s = time.monotonic()
        return over() or started_again(manager, record)

    if shortfall := production.await_answer(recorded, state, request.production_ready_s, over_or_again):
        raise ScriptError("verify", shortfall.text)
    answering = Answering(recorded["declared"])
    check = OfProduction(manager, manager.answered_before)
    version = None
    try:
        for _ in range(COMPLETIONS if answering.can_be_asked else 0):
            if wrong := answering.wrong(answering.served_model(check), check):
                raise ScriptError("verify", f"Production gave an answer and then none: {wrong}")
        if recorded["url"]:
            version = serving.reported_version(recorded["url"], check=check)
    except ForeignServerError as stranger:
        raise ScriptError("verify", stranger.text) from stranger
    if not is_version(request.engine_version, version):
        raise ScriptError(
            "verify", f"The config was measured on vLLM {request.engine_version}, and production reports {version}."
        )
    _require_arguments(recorded["url"], record["apply"])
    return version


def _require_arguments(url: str | None, apply: Json) -> None:
    """Raise ScriptError where the process that listens is seen to have other arguments than the definition."""
    words = without_secrets(apply["words"][apply["program"] :])
    parts = urlsplit(url or "")
    arguments = facts.served_with(parts.hostname or "127.0.0.1", parts.port or 80) if url else []
    # What the manager replaces is not known here.
    if arguments and not any("$" in word or "%" in word for word in words) and arguments != words:
        raise ScriptError(
            "verify", f"What serves was started with {shown_command(arguments)}, not with {shown_command(words)}."
        )


def started_again(manager: Manager, record: Json) -> str | None:
    """A sentence where production was started again since the change started it; None where it was not."""
    if manager.last_start() == record["apply"].get("last_start"):
        return None
    return "Production ended after its start by the new definition, and its manager started it again."


def changed_production(record: Json) -> Json:
    """Recorded production with the definition that the apply gave it."""
    was = record["production"]
    return {**was, "definition": record["apply"].get("new_definition", was["definition"]), "described": None}


def _failed(state: State, request: ChangeRequest, phases: Phases, record: Json, reason: str) -> ChangeAnswer:
    """The node given back after a failure, by this command unless somebody was first."""
    failed_in = phases.spans[-1].name if phases.spans else None
    current = records.read_if_possible(state)
    if current is not None and current["nonce"] == record["nonce"]:
        outcome = restore(state, phases, by="change")
        if outcome.restored:
            lease.release_lock(state)
    else:
        before = records.outcome_of_trial(state, record["trial_id"], record["holder"])
        outcome = picked(RestoreOutcome, before) if before else RestoreOutcome(restored=True, was_running=True)
    return ChangeAnswer(
        changed=False,
        message=reason,
        failed_in=failed_in,
        phases=phases.spans,
        started_at_unix_s=phases.started_at_unix_s,
        was_sha256=record["apply"]["was_sha256"],
        new_sha256=record["apply"]["new_sha256"],
        was_text=record["apply"]["was_text"],
        new_text=record["apply"]["new_text"],
        engine_version=None,
        downtime_s=outcome.downtime_s or 0.0,
        restoration=outcome,
    )


def confirm(state: State, request: ConfirmRequest) -> ConfirmAnswer:
    """Make the changed definition production's own, once it is seen to be there and to answer.

    Raises ScriptError where it is not confirmed; the controller then gives the node back, or the guard does.
    """
    phases = Phases(state)
    with mutex.exclusive(state):
        record = records.read(state)
        if record is None or (record["trial_id"], record["holder"]) != (request.apply_id, request.holder):
            raise ScriptError("not_waiting", f"No apply {request.apply_id} waits here: the node has put it back.")
        if not record["apply"]["confirmed"]:
            if due := guard.is_due(state, record):
                raise ScriptError("not_confirmed", f"Not confirmed, for {due}: the node puts it back.")
            with phases.span("confirming"):
                if checksum(recorded_manager(record["production"], state).describe()) != record["apply"]["new_sha256"]:
                    raise ScriptError("not_confirmed", "Somebody has changed production's definition during the bake.")
                recorded = changed_production(record)
                if again := started_again(recorded_manager(recorded, state), record):
                    raise ScriptError("not_confirmed", again)
                if wrong := production.await_answer(recorded, state, production.ANSWER_S):
                    raise ScriptError("not_confirmed", wrong.text)
                # Whoever reads the record from now on makes production by its new definition.
                apply = {**record["apply"], "confirmed": True}
                record = {**record, "production": recorded, "apply": apply}
                state.write(records.NAME, record)
        problem = conclude(state, record)
        if problem is None:
            lease.release_lock(state)
            phases.mark("confirmed")
        message = "The new definition is production's own." + (f" {problem}, so the guard goes on." if problem else "")
        return ConfirmAnswer(confirmed=True, message=message, sha256=record["apply"]["new_sha256"], phases=phases.spans)
