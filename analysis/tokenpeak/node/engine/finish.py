"""Ending a trial: the engine and its sampler stopped, what they wrote collected, production back."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace

from tokenpeak.node.engine import launch
from tokenpeak.node.engine.engine import LOG, OUTPUT, Engine
from tokenpeak.node.guard import guard, lease, mutex, overlap
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import root_files, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.probe import meters
from tokenpeak.node.production.restore import not_touched, restore, stop_engine
from tokenpeak.node.protocol.answers import FinishAnswer
from tokenpeak.node.protocol.parts import RestoreOutcome, Series, picked
from tokenpeak.node.protocol.requests import FinishRequest, sweep_of


def finish(state: State, declaration: Json, request: FinishRequest) -> FinishAnswer:
    """End the trial whatever became of it; always answers, also when nothing was launched or the guard was first.

    A node that another sweep has, or another trial of this one, is not touched: trials of two sweeps have equal ids.
    """
    phases = Phases(state)
    trial_id, holder = request.trial_id, request.holder
    with mutex.exclusive(state):
        lease.refuse_older(state, request.claim, holder)
        record = records.read_if_possible(state)
        if lease.is_of_another(state, holder, sweep_of(request.claim)) or (
            record is not None and (record["trial_id"] != trial_id or "apply" in record)
        ):
            now, known = not_touched(state), _known(state, request)
            return FinishAnswer(
                phases=phases.spans,
                started_at_unix_s=phases.started_at_unix_s,
                engine_stopped=True,
                restoration=replace(known, message=f"{known.message} {now.message}") if known else now,
                given_back_by=_given_back_by(state, request, None, is_running=False),
                log="",
            )
        baseline = record.get("baseline_bytes") if record else None
        engine = Engine(state)
        ran, exit_status = (engine.is_running(), engine.exit_status()) if record else (None, None)
        given_back_by = _given_back_by(state, request, record, is_running=bool(ran))
        # What its launch was allowed: an end that takes longer would keep production down beyond that.
        grace_s = _allowed_s(record, "engine_stop_s", request.engine_stop_s)
        ended = stop_engine(state, phases, grace_s, baseline)
        restoration = None
        if request.restore_production:
            ready_s = _allowed_s(record, "production_ready_s", request.production_ready_s)
            outcome = restore(state, phases, by="finish", ready_s=ready_s)
            restoration = (None if outcome.trial_id else _known(state, request)) or outcome
            if outcome.restored and not request.keep_lock:
                lease.release_lock(state)
        elif record is None:
            restoration = _known(state, request)
        else:
            lease_s = (state.read(lease.FILE) or {}).get("lease_s", 0.0)
            lease.renew(state, lease_s, holder)
        phases.mark("collecting")
        output = state.read(OUTPUT) or {}
        is_its_output = _is_of(output, request)
        answer = FinishAnswer(
            phases=phases.spans,
            started_at_unix_s=phases.started_at_unix_s,
            engine_ran=ran,
            exit_status=exit_status,
            engine_stopped=ended["engine_stopped"],
            restoration=restoration,
            given_back_by=given_back_by,
            production_overlap_unix_s=_overlap_unix_s(state, request),
            telemetry=meters.collect(state) if is_its_output else Series(),
            log=packed_log(state, declaration, output) if is_its_output else "",
        )
        phases.mark("finished")
        return answer


def _is_of(noted: Json, request: FinishRequest) -> bool:
    """Whether what was written down is of this very trial."""
    return (noted.get("trial_id"), noted.get("holder")) == (request.trial_id, request.holder)


def _given_back_by(state: State, request: FinishRequest, record: Json | None, *, is_running: bool) -> str | None:
    """Who gave the node back from this trial, or began to, `guard` for one; None when nobody is known to have.

    Whoever gives a node back ends the engine first, also where production then does not come up. A disk that refuses
    writes keeps the record of a node that was given back. The engine has ended then, and a guard that is due has ended
    it, or would have.
    """
    before = records.outcome_of_trial(state, request.trial_id, request.holder)
    if before is not None and (before["restored"] or not is_running):
        return str(before["by"])
    if record is None:
        return "another"
    return "guard" if not is_running and guard.is_due(state, record) else None


def _known(state: State, request: FinishRequest) -> RestoreOutcome | None:
    """How somebody gave the node back from this trial before, normally the guard; None where that is not known."""
    before = records.outcome_of_trial(state, request.trial_id, request.holder)
    if before is None or not before["restored"]:
        return None
    outcome: RestoreOutcome = picked(RestoreOutcome, before)
    return replace(outcome, message=f"{outcome.message} Given back by {outcome.by}.")


def _overlap_unix_s(state: State, request: FinishRequest) -> float | None:
    """When production was found running in the midst of this trial; None when it was not."""
    noted = state.read(overlap.FILE) or {}
    return float(noted["at_unix_s"]) if _is_of(noted, request) else None


def _allowed_s(record: Json | None, name: str, wanted_s: float) -> float:
    """The time that is wanted, but no longer than the trial's launch was allowed."""
    return min(wanted_s, float((record or {}).get(name, wanted_s)))


def packed_log(state: State, declaration: Json, output: Json) -> str:
    """The engine's log without secrets and the key of the trial that `output` is of: base64 of zlib of UTF-8."""
    path = state.path(LOG)
    if not path.exists():
        return ""
    root_files.cut_log(path)
    raw = trust.read_end(path, root_files.KEPT_LOG_BYTES)
    try:
        values = launch.secret_values(declaration, launch.api_key(state, output))
        text = launch.redact(raw.decode(errors="replace"), values)
    except ScriptError as error:
        # Production is back by now: that is said, whatever became of the secret.
        text = f"[The log was left out, because secrets cannot be taken out of it: {error.text}]\n"
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()
