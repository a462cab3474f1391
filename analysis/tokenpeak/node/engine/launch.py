"""Taking the node from production and starting the engine on it, up to the engine's first real completion."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from tokenpeak.node import rights
from tokenpeak.node.engine import serving
from tokenpeak.node.engine.builds import SERVER, engine_build, is_version
from tokenpeak.node.engine.container import container_environment
from tokenpeak.node.engine.engine import Engine, declared_environment, read_environment_file, trial_key
from tokenpeak.node.engine.images import container_start
from tokenpeak.node.engine.installed import entry_digest
from tokenpeak.node.engine.models import declared_model, model_digest, model_problem
from tokenpeak.node.engine.serving import ForeignServerError
from tokenpeak.node.guard import guard, lease, mutex
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.probe import chosen_boards, facts, meters
from tokenpeak.node.production import drain, production
from tokenpeak.node.production.answering import of_processes, standing
from tokenpeak.node.production.managers import recorded_manager
from tokenpeak.node.production.restore import restore, stop_engine
from tokenpeak.node.protocol.answers import LaunchAnswer
from tokenpeak.node.protocol.parts import Production, picked
from tokenpeak.node.protocol.requests import LaunchRequest, sweep_of

LOG_TAIL_BYTES = 32_768
OTHER_KEYS = ("LLAMA_API_KEY", "API_KEY")
"""Variables by which llama.cpp's server and llama-cpp-python's take the API key; other servers serve without one."""
LEASE_LAPSED = "lease_lapsed"
WRONG_ENGINE = "wrong_engine"
MODEL_MISSING = "model_missing"
ADDRESS_TAKEN = "address_taken"
LEAST_ROOM_BYTES = 1_000_000
"""Room for a trial's state and the engine's log: one that cannot write its log ends without saying why."""


def launch(state: State, declaration: Json, request: LaunchRequest) -> LaunchAnswer:
    """Borrow the node and start the engine; a config that does not come up is an answer (`ready` false).

    Raises ScriptError when the node cannot be borrowed; production is then untouched, or back.
    """
    phases = Phases(state)
    engine = Engine(state)
    host = declaration.get("host", "127.0.0.1")
    port = int(declaration.get("port", 8099))
    key = api_key(state, vars(request))
    build = engine_build(declaration, request.engine)
    env = environment(declaration, request, key, build)
    hidden = secret_values(declaration, key)
    if unsafe := rights.build_problems(declaration, build):
        raise ScriptError("rights", " ".join(unsafe))
    # What is missing of it is said while production still serves.
    in_container = container_start(declaration, build) if "image" in build else None
    if in_container is not None:
        env = container_environment(build, declaration, env)
    started = {**build, "command": request.argv}
    digest = in_container.digest if in_container else entry_digest(declaration.get("engine") or {}, started)
    answer = LaunchAnswer(
        ready=False,
        timed_out=False,
        engine_digest=digest,
        log_tail="",
        host=host,
        port=port,
        api_key_used=key is not None,
        started_at_unix_s=phases.started_at_unix_s,
        production_found_down=False,
    )
    model = declared_model(declaration, request.model)
    user = str((declaration.get("engine") or {}).get("user") or "") or None
    if request.engine_digest is not None and digest not in (None, request.engine_digest):
        text = f"The engine was {request.engine_digest} when the sweep began, and is {digest} now: begin another sweep."
        return replace(answer, failure_phase=WRONG_ENGINE, message=text)
    if model and (absent := model_problem(build, model, env, request.argv, user)) is not None:
        return replace(answer, failure_phase=MODEL_MISSING, message=absent)
    checksum = model_digest(build, model, env, request.argv, user) if model else None
    outcome: Readiness | None = None
    pid: int | None = None
    with mutex.exclusive(state):
        record = borrow(state, declaration, request, (host, port), phases)
        if request.idle_s:
            with phases.span("idle_power"):
                meters.start(state)
                time.sleep(request.idle_s)
        began = time.monotonic()
        try:
            pid = engine.start(request, env, declaration.get("engine") or {}, in_container)
            if not request.idle_s:
                meters.start(state)
        except ScriptError as error:
            outcome = Readiness("starting", error.text)
    with phases.span("engine_start", "engine_start"):
        if outcome is None:
            base, deadline = serving.base_url(host, port), began + request.deadline_s
            outcome = await_ready(state, engine, record["nonce"], base, request.served_model, key, deadline, phases)
    reported = build.get(SERVER) or outcome.engine_version
    if outcome.failure_phase is None and not is_version(request.engine_version, reported):
        text = f"vLLM {request.engine_version} was asked for, and the engine that was started reports {reported}."
        outcome = Readiness(WRONG_ENGINE, text)
    if outcome.failure_phase is not None:
        engine.collect_log()
    phases.mark("engine_ready" if outcome.failure_phase is None else "engine_failed")
    return replace(
        answer,
        ready=outcome.failure_phase is None,
        failure_phase=outcome.failure_phase,
        timed_out=outcome.timed_out,
        message=outcome.message,
        exit_status=engine.exit_status(),
        engine_version=reported,
        model_digest=checksum,
        log_tail=redact(log_tail(engine.log), hidden),
        pid=pid,
        phases=phases.spans,
        production_found_down=bool(record.get("found_down")),
        production=picked(Production, record["production"]),
    )


def borrow(state: State, declaration: Json, request: LaunchRequest, address: tuple[str, int], phases: Phases) -> Json:
    """Lock, record, guard, production stopped, memory free; the record. `address` is where the engine will listen.

    Production that this sweep stopped already is left so.
    """
    lease.note_generation(state, request.claim, request.holder)
    lease.require_no_hold(state)
    state.require_room(LEAST_ROOM_BYTES)
    at_start = lease.served(state, request.holder, sweep_of(request.claim), request.production_at_start)
    lease.take_lock(state, request.holder, sweep_of(request.claim))
    record = records.read(state)
    if record is not None and guard.is_due(state, record):
        # The guard is about to give this back, or waits for its turn: a trial must not begin under its hands.
        outcome = restore(state, phases, by="launch")
        if not outcome.restored:
            raise ScriptError("production", f"After an earlier trial, {standing(outcome.restored)}: {outcome.message}")
        record = None
    if record is not None and "apply" in record:
        # Its holder's name is no secret: whoever may run trials would move its deadline.
        raise ScriptError(
            "locked",
            f"The apply {record['trial_id']} of {record['holder']} has the node and waits to be confirmed: wait until "
            "it has ended, or `tokenpeak restore`, which puts production's definition back.",
        )
    if record is not None:
        # Production was stopped by an earlier trial of this sweep (restore: per_sweep), or that trial's end was lost.
        lease.renew(state, request.lease_s, request.holder)
        stop_engine(state, phases, request.engine_stop_s, record.get("baseline_bytes"))
        _require_free(address)
        record = {**record, **_trial_part(request, declaration)}
        state.write(records.NAME, record)
        guard.arm(state, record["nonce"])
        # Whoever wrote the record may have died before production had ended.
        return record if "baseline_bytes" in record else _stopped_production(state, record, phases)
    stop_engine(state, phases, request.engine_stop_s, None)
    try:
        with phases.span("recording"):
            _require_free(address)
            serving_now = production.record(declaration.get("production") or {"manager": "none"}, state)
            if serving_now["running"]:
                lease.note_served(state, serving_now["model"])
            was = production.at_sweep_start(serving_now, at_start)
            record = {
                **records.new(was, declaration.get("drain"), request.production_ready_s, request.engine_stop_s),
                "found_down": was["running"] and not serving_now["running"],
                **_trial_part(request, declaration),
            }
            lease.renew(state, request.lease_s, request.holder)
            state.write(records.NAME, record)
        with phases.span("arming"):
            guard.arm(state, record["nonce"])
    except (ScriptError, OSError):
        # Production was not touched yet, so nothing is left to restore.
        state.remove_if_possible(records.NAME)
        lease.release_lock(state)
        raise
    return _stopped_production(state, record, phases)


def _require_free(address: tuple[str, int]) -> None:
    """Raise ScriptError where another server has the engine's address: it would be measured in the engine's place."""
    problem = facts.port_problem(*address)
    if problem:
        raise ScriptError("port", problem)


def _stopped_production(state: State, record: Json, phases: Phases) -> Json:
    """The record when production has been stopped; if it cannot be, the node is given back and ScriptError raised."""
    try:
        return _stop_production(state, record, phases)
    except (ScriptError, OSError) as error:
        outcome = restore(state, phases, by="launch")
        if outcome.restored:
            lease.release_lock(state)
        raise ScriptError("production", f"{str(error).rstrip('.')}. Given back: {outcome.message}") from error


def _trial_part(request: LaunchRequest, declaration: Json) -> Json:
    return {
        "gpus": chosen_boards.chosen_boards(declaration),
        "holder": request.holder,
        "sweep_id": sweep_of(request.claim),
        "trial_id": request.trial_id,
        "secret": request.secret,
        "deadline_boot_s": clock.boot_s() + request.trial_deadline_s,
    }


def _stop_production(state: State, record: Json, phases: Phases) -> Json:
    if record["production"]["running"] and "stopped" not in record:
        record = drain.take_out(state, record, phases)
    now: Json = {"unix_s": time.time(), "boot_s": clock.boot_s(), "boot_id": clock.boot_id()}
    stopped = record.get("stopped", now)
    if record["production"]["running"]:
        state.write(records.NAME, {**record, "stopped": stopped})
        with phases.span("production_stop"):
            production.stop(record["production"], state)
    last_start = recorded_manager(record["production"], state).last_start()
    with phases.span("memory_wait"):
        level = facts.wait_level(facts.make_gauge(chosen_boards.chosen_for_trial(state)))
    record = {**record, "stopped": stopped, "baseline_bytes": level.used_bytes, "last_start": last_start}
    state.write(records.NAME, record)
    return record


class Readiness(NamedTuple):
    """How far an engine came: its failure's phase, or None where it is ready.

    `starting` and `first_completion`, or, which say nothing about the config, `lease_lapsed` and `address_taken`:
    somebody else answers where the engine would.
    """

    failure_phase: str | None
    message: str = ""
    timed_out: bool = False
    engine_version: str | None = None
    """The version that a ready engine reports."""


def await_ready(
    state: State,
    engine: Engine,
    nonce: str,
    base: str,
    model: str,
    key: str | None,
    deadline: float,
    phases: Phases,
) -> Readiness:
    """Wait until it is healthy, then for a first real completion, both by a process of the engine."""
    check = of_processes(engine.members, "the engine")
    try:
        while not serving.is_healthy(base, key, check):
            over = _ended(state, engine, nonce)
            if over is not None:
                return over
            if time.monotonic() >= deadline:
                return Readiness("starting", "The engine was not healthy in time.", timed_out=True)
            time.sleep(0.05)
        phases.mark("first_completion")
        left_s = max(1.0, deadline - time.monotonic())
        wrong = serving.complete(base, model, key, timeout_s=left_s, check=check)
        if wrong is None:
            return Readiness(None, engine_version=serving.reported_version(base, key, check=check))
    except ForeignServerError as stranger:
        return Readiness(ADDRESS_TAKEN, f"{stranger.text} End it, or set tokenpeak_port to another port.")
    over = _ended(state, engine, nonce)
    if over is not None and over.failure_phase == LEASE_LAPSED:
        return over
    text = f"The engine is healthy but gave no completion by {shown_value(model)}: {wrong}"
    return Readiness(
        "first_completion", f"{text} {over.message}" if over else text, timed_out=time.monotonic() >= deadline
    )


def _ended(state: State, engine: Engine, nonce: str) -> Readiness | None:
    """Why there is nothing to wait for any more; None while there is."""
    record = records.read(state)
    running = engine.is_running()
    if record is None or record["nonce"] != nonce or (not running and lease.has_lapsed(state)):
        return Readiness(LEASE_LAPSED, "The guard gave the node back while the engine was starting.")
    return None if running else Readiness("starting", "The engine ended while it was starting.")


def api_key(state: State, request: Mapping[str, Any]) -> str | None:
    """The trial's key, derived from the node's secret for the controller that asks; None where it names none.

    `request` is a launch request, or what was kept of one.
    """
    name = request.get("secret")
    if name is None:
        return None
    secret = state.path(name)
    if not secret.is_file():
        raise ScriptError(
            "secret",
            f"This controller's secret is not at {secret}: put it there by `tokenpeak probe`, or `tokenpeak install`.",
        )
    if not request.get("key_nonce"):
        raise ScriptError("request", "The request names a secret and no key_nonce: its controller has another version.")
    return trial_key(secret.read_bytes(), request["trial_id"], request["holder"], request["key_nonce"])


def environment(declaration: Json, request: LaunchRequest, key: str | None, build: Json) -> dict[str, str]:
    """The engine's environment beyond this script's own: the declared, and on top the config's."""
    env = {**declared_environment(declaration), **request.env}
    if key:
        env.update(dict.fromkeys(OTHER_KEYS if SERVER in build else ("VLLM_API_KEY",), key))
    return env


def secret_values(declaration: Json, key: str | None) -> list[str]:
    """Words that must not appear in any log that leaves the node."""
    declared = declaration.get("engine") or {}
    values = list(read_environment_file(declared.get("env_file")).values())
    return [value for value in [*values, key or ""] if len(value) >= 6]


def redact(text: str, values: list[str]) -> str:
    """The text with each secret value blacked out."""
    for value in values:
        text = text.replace(value, "[secret]")
    return text


def log_tail(path: Path) -> str:
    """The log's last part, whole lines."""
    raw = trust.read_end(path, LOG_TAIL_BYTES)
    text = raw.decode(errors="replace")
    return text if len(raw) < LOG_TAIL_BYTES else text.split("\n", 1)[-1]
