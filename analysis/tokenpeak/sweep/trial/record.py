"""Trial record and the failure in it, from the node's answers, the client's measurements and the engine's log."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tokenpeak.node.engine.builds import is_version
from tokenpeak.node.engine.launch import MODEL_MISSING, WRONG_ENGINE
from tokenpeak.node.machine import clock
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.node.protocol.parts import Series
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.records import FAILURE_CAUSES, UNEXPLAINED_CAUSES, Failure, Phase, Provenance, Reason, RunRecord
from tokenpeak.records.quality import QualityMeasurement
from tokenpeak.records.trial import TrialRecord
from tokenpeak.results.board_readings import board_temperature_c, clock_reasons
from tokenpeak.results.board_readings import idle_power as measured_idle_power
from tokenpeak.results.energy import run_energies
from tokenpeak.results.power_sensor import boards_sensor
from tokenpeak.results.trial_time import clock_offset_s, fill_gaps, load_phase, merged, node_phases, step_spans
from tokenpeak.results.verdict import NETWORK_OUTAGE, OVERLAP
from tokenpeak.search.history import objective_runs
from tokenpeak.sweep.ansible.dispatch import Step
from tokenpeak.sweep.ansible.result import recorded
from tokenpeak.sweep.trial.client_output import ClientOutput
from tokenpeak.sweep.trial.request import TrialRequest
from tokenpeak.terminal import visible_log
from tokenpeak.vllm.startup_log import classify_failure, startup_facts, unpacked_log

_OF_THE_NODE = ("lease_lapsed", "address_taken")
"""Failures of a launch that say nothing about its config."""
_DISK_FAULT = re.compile(
    r"(?m)^(?!.*(?:/dev/shm|posix_fallocate|shared memory)).*?(\[Errno (?:5|28|116|122)\] [A-Z][\w/ ]{0,60}"
    r"|[A-Z][\w/ ]{0,60}\(os error (?:5|28|116|122)\)|No space left on device)"
)
"""What a disk that is full, over its quota, broken or gone does (EIO, ENOSPC, ESTALE, EDQUOT); /dev/shm is none."""
_READ_ONLY = re.compile(r"\[Errno 30\] Read-only file system|Read-only file system \(os error 30\)")
"""At a start it may be a path that the config names; under load the disk has become so."""
_NOT_REACHED = frozenset({"connect_timeout", "connect_failed"})
"""Failures of requests that no server has seen, be it up or down."""


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    """Everything that is known of a trial when it has ended. Missing answers are empty."""

    request: TrialRequest
    started_at: datetime
    started_boot_s: float
    """On the clock that counts a suspended machine's time, as the node's own account of an outage does."""
    argv: tuple[str, ...] = ()
    output: Path | None = None
    """Where the load client wrote."""
    launch: LaunchAnswer = field(default_factory=LaunchAnswer)
    finish: FinishAnswer = field(default_factory=FinishAnswer)
    spans: Mapping[Step, tuple[float, float]] = field(default_factory=dict)
    failure: str | None = None
    own_task_failed: bool = False
    """What failed is a task of the inventory's own."""
    unreachable: str | None = None
    cancelled: bool = False
    overlapped: bool = False
    """Somebody started production during the trial."""

    @property
    def written(self) -> ClientOutput:
        """What the load client wrote."""
        return ClientOutput(self.output)


def failure_of(evidence: TrialEvidence, runs: tuple[RunRecord, ...], log: str) -> Failure | None:
    """Why the trial gave no result; None when it gave one."""
    if evidence.cancelled:
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message="The sweep was interrupted.")
    if is_overlapped(evidence):
        return _outage(_phase_reached(evidence), OVERLAP.text, cause=OVERLAP.code)
    if evidence.unreachable:
        return _outage(_phase_reached(evidence), evidence.unreachable, cause="node_unreachable")
    if evidence.own_task_failed and evidence.failure is not None and evidence.launch.ready is not False:
        return _failure(_phase_reached(evidence), "inventory_task", evidence.failure)
    of_launch, taken_back = _failure_of_launch(evidence, log), _taken_back(evidence)
    if of_launch is not None and (taken_back is None or of_launch.cause not in UNEXPLAINED_CAUSES):
        return of_launch
    return taken_back or _failure_under_load(evidence, runs, log)


def _outage(phase: str, reason: str, *, cause: str = "interrupted") -> Failure:
    """The trial is to be made again, for a reason that lies in node, network, disk or controller."""
    return _failure(phase, cause, reason)


def _failure(phase: str, cause: str, reason: str) -> Failure:
    """A failure with what its cause's entry advises."""
    return Failure(phase=phase, cause=cause, message=f"{reason.rstrip()} {FAILURE_CAUSES[cause].advice or ''}".strip())


def _failure_of_launch(evidence: TrialEvidence, log: str) -> Failure | None:
    """Why no engine that the config asks for was ready; None when one was."""
    launch = evidence.launch
    if launch.ready is None:
        return _outage("launch", evidence.failure or "The node's launch command gave no answer.")
    if launch.failure_phase in _OF_THE_NODE:
        return _outage("launch", launch.message or "The node's lease lapsed and its guard gave it back.")
    if (wrong := _wrong_engine(evidence, log)) is not None:
        return wrong
    if launch.failure_phase == MODEL_MISSING:
        return Failure(phase="launch", cause=MODEL_MISSING, message=launch.message or "It is not there.")
    if launch.ready:
        return None
    phase = launch.failure_phase or "engine_start"
    if launch.pid is None and launch.message and not log:
        # Neither a process nor a word of one: its program is not there, or what starts it refused.
        return _failure(phase, "engine_not_started", launch.message)
    if (fault := _DISK_FAULT.search(log)) is not None:
        return _disk_fault(fault, phase)
    return classify_failure(log, phase=phase, exit_status=launch.exit_status, timed_out=bool(launch.timed_out))


def _taken_back(evidence: TrialEvidence) -> Failure | None:
    """That somebody ended the trial before its own end; None when nobody did."""
    by, restoration = evidence.finish.given_back_by, evidence.finish.restoration
    if by in (None, "finish"):
        return None
    if by == "guard":
        reason = "The node's guard ended the trial while it was under way: its lease or its deadline had passed."
    else:
        # Whoever gave it back ended the engine, and another's may have answered in its place.
        reason = "The node was taken from this trial while it was under way: by another sweep, or by tokenpeak restore."
    account = restoration.message if restoration is not None else ""
    return _outage(_phase_reached(evidence), f"{reason} {account}")


def _failure_under_load(evidence: TrialEvidence, runs: tuple[RunRecord, ...], log: str) -> Failure | None:
    """Why an engine that was ready gave no result; None when it gave one.

    A cut network counts where nothing shows that the engine failed.
    """
    if (lost := evidence.written.outcome().lost_host) is not None:
        return _outage("load", lost, cause="load_host_lost")
    if (refused := evidence.written.outcome().refused) is not None:
        return Failure(phase="load", cause="refused", message=refused)
    network = _network_outage(runs)
    left_out = evidence.written.outcome().left_out is not None
    expected = 1 if left_out else sum(len(plan.levels) for plan in evidence.request.spec.workloads)
    is_whole = len(runs) == expected and any(run.summary.requests_ok for run in runs)
    if evidence.finish.engine_ran is False and not (is_whole and _died_after_load(evidence)):
        # Whatever requests ended well before: a config whose engine does not outlive the load has failed.
        logged = _by_the_log(log, evidence.finish.exit_status)
        if logged.cause == "refused":
            # By the log alone it would still run. Who took the node meanwhile may have ended it, and not got to say so.
            reason = "The engine ended in load, and neither its log nor a status says why."
            logged = _failure("load", "stopped", reason).model_copy(update={"evidence": logged.evidence})
        return network if network is not None and logged.cause in UNEXPLAINED_CAUSES else logged
    if evidence.failure is None and is_whole:
        own = objective_runs(runs, evidence.request.spec)
        is_measured = any(run.verdict.well_measured for run in own)
        return None if is_measured else _network_outage(own)
    logged = _by_the_log(log, None)
    if logged.cause in UNEXPLAINED_CAUSES or logged.cause == "crashed":
        # The engine lives, so that an exception in its log did not end it.
        if network is not None:
            return network
        if evidence.failure is not None:
            return _outage("load", evidence.failure)
    if logged.cause not in UNEXPLAINED_CAUSES or _is_refused(runs):
        return logged
    reason = f"No request of {len(runs)} runs ended well; {expected} runs were requested."
    return _failure("load", "load_failed", reason).model_copy(update={"evidence": logged.evidence})


def _is_refused(runs: Sequence[RunRecord]) -> bool:
    """Whether the engine itself answered every request that failed, by a refusal: it would again."""
    kinds = [kind for run in runs for kind in run.summary.failures]
    return bool(kinds) and all(kind.startswith("http_") for kind in kinds)


def _by_the_log(log: str, exit_status: int | None) -> Failure:
    """What the engine's log and its end say of a failure under load."""
    if (fault := _DISK_FAULT.search(log) or _READ_ONLY.search(log)) is not None:
        return _disk_fault(fault, "load")
    return classify_failure(log, phase="load", exit_status=exit_status, timed_out=False)


def _network_outage(runs: Sequence[RunRecord]) -> Failure | None:
    """That the network path between load generator and engine was cut; None where no run shows that."""
    for run in runs:
        reason = next((reason for reason in run.verdict.reasons if reason.code == NETWORK_OUTAGE), None)
        if reason is not None:
            return _outage("load", reason.text, cause=NETWORK_OUTAGE)
        failures = run.summary.failures
        if not run.summary.requests_ok and failures and _NOT_REACHED.issuperset(failures):
            count = sum(failures.values())
            text = f"None of {count} requests of {run.workload.name} at {run.level_label} got to the engine's address."
            return _outage("load", text, cause=NETWORK_OUTAGE)
    return None


def _died_after_load(evidence: TrialEvidence) -> bool:
    """Whether the engine outlived the load and ended while its answers were measured: their quality is unknown then."""
    measured = quality_of(evidence)
    return measured is not None and measured.problem is not None and measured.is_begun


def _wrong_engine(evidence: TrialEvidence, log: str) -> Failure | None:
    """That another version ran than was asked for; by the log of an engine that reports none."""
    if evidence.launch.failure_phase == WRONG_ENGINE:
        message = evidence.launch.message or "Another engine than asked for was started."
        return Failure(phase="launch", cause=WRONG_ENGINE, message=message)
    wanted, logged = evidence.request.asked_version, startup_facts(log).engine_version
    if evidence.launch.engine_version is not None or not evidence.launch.ready or is_version(wanted, logged):
        return None
    return Failure(
        phase="launch", cause=WRONG_ENGINE, message=f"vLLM {wanted} was asked for, and the engine's log says {logged}."
    )


def _disk_fault(fault: re.Match[str], phase: str) -> Failure:
    """What a disk did to an engine says nothing of its config."""
    return _outage(
        phase, f"The node's disk is full, read-only or broken: the engine met '{fault[fault.lastindex or 0].strip()}'."
    )


def is_overlapped(evidence: TrialEvidence) -> bool:
    """Whether somebody started production during the trial, as the controller or the node saw it."""
    return evidence.overlapped or evidence.finish.production_overlap_unix_s is not None


def _phase_reached(evidence: TrialEvidence) -> str:
    """The last step that was begun."""
    return max(evidence.spans, key=lambda step: evidence.spans[step][0], default="launch")


def quality_of(evidence: TrialEvidence) -> QualityMeasurement | None:
    """That the launch's answers were measured; None where that was not asked for, or it never started."""
    if evidence.request.quality is None or evidence.output is None or not evidence.launch.ready:
        return None
    return evidence.written.quality()


def unusable_reasons(launch: LaunchAnswer, finish: FinishAnswer) -> tuple[Reason, ...]:
    """Why runs are invalid whose node gave an answer that is not usable as a whole."""
    return tuple(
        Reason(
            code="node_answer",
            text=f"The node's answer to {command} is used only in part: {', '.join(answer.unusable)}.",
        )
        for command, answer in (("launch", launch), ("finish", finish))
        if answer.unusable
    )


def trial_record(
    evidence: TrialEvidence, provenance: Provenance, refused: str | None = None
) -> tuple[TrialRecord, str]:
    """The trial's record, and its engine's log (empty when the engine never wrote one).

    `refused`: why no engine of this version can be asked for the config; production was not touched then.
    """
    request = evidence.request
    log = _engine_log(evidence)
    started_unix_s = evidence.started_at.timestamp()
    offset_s = _offset_s(evidence)
    telemetry = _telemetry(evidence.finish.telemetry, offset_s + started_unix_s)
    windows = evidence.written.measured_windows()
    doubts = (*unusable_reasons(evidence.launch, evidence.finish), *([OVERLAP] if is_overlapped(evidence) else []))
    runs = tuple(
        _with_telemetry(run, windows.get(run.run_index), telemetry, evidence, doubts) for run in evidence.written.runs()
    )
    failure = (
        failure_of(evidence, runs, log) if refused is None else Failure(phase="plan", cause="refused", message=refused)
    )
    quality = quality_of(evidence)
    # Whether its config is to blame; else the trial is made again.
    status = "ok" if failure is None else "failed" if FAILURE_CAUSES[failure.cause].counts else "interrupted"
    launched = {name: getattr(evidence.launch, name) for name in ("engine_version", "engine_digest", "model_digest")}
    launched["ready_s"] = _ready_s(evidence.launch)
    known = {name: value for name, value in launched.items() if value is not None}
    spans = [
        *node_phases(evidence.launch, offset_s=offset_s, trial_started_unix_s=started_unix_s),
        *node_phases(evidence.finish, offset_s=offset_s, trial_started_unix_s=started_unix_s),
        *load_phase(runs, windows),
        *_quality_phase(quality, evidence),
    ]
    duration_s = clock.boot_s() - evidence.started_boot_s
    record = TrialRecord(
        sweep_id=request.sweep_id,
        trial_id=request.trial_id,
        node=request.node.name,
        hardware=request.hardware,
        config=request.config,
        config_class=request.planned.config_class,
        replicate=request.proposal.replicate,
        holdout=request.proposal.holdout,
        simulated=request.facts.simulated,
        status=status,
        failure=failure,
        started_at=evidence.started_at,
        duration_s=duration_s,
        argv=evidence.argv,
        phases=fill_gaps(spans, duration_s, step_spans(evidence.spans.items(), started_unix_s)),
        startup=startup_facts(log).model_copy(update=known),
        idle_power=measured_idle_power(telemetry, spans, boards_sensor(request.facts.gpus)),
        runs=runs,
        quality=quality,
        left_out=evidence.written.outcome().left_out,
        series=merged(evidence.written.metrics(), telemetry),
        restoration=recorded(evidence.finish.restoration),
        prediction=request.planned.prediction,
        provenance=provenance,
    )
    return record, log


def _offset_s(evidence: TrialEvidence) -> float:
    answers: dict[Step, LaunchAnswer | FinishAnswer] = {"launch": evidence.launch, "finish": evidence.finish}
    for step, answer in answers.items():
        if answer.started_at_unix_s is not None and step in evidence.spans:
            return clock_offset_s(answer, evidence.spans[step][1], is_local=evidence.request.node.is_local)
    return 0.0


def _engine_log(evidence: TrialEvidence) -> str:
    """The engine's whole log as finish sent it, safe to be shown; else the tail that launch gave."""
    packed = evidence.finish.log
    if packed:
        try:
            return visible_log(unpacked_log(packed))
        except ValueError as error:
            return f"(the log did not arrive whole: {error})\n{evidence.launch.log_tail or ''}"
    return visible_log(evidence.launch.log_tail or "")


def _telemetry(samples: Series, zero_unix_s: float) -> Series:
    """The node's samples with times after the trial's start; `zero_unix_s` is that start on the node's clock."""
    return Series(t_s=tuple(round(t - zero_unix_s, 3) for t in samples.t_s), columns=dict(samples.columns))


def _quality_phase(measured: QualityMeasurement | None, evidence: TrialEvidence) -> list[Phase]:
    """The span of the trial in which its answers were measured."""
    if measured is None or measured.started_at is None:
        return []
    started_s = (measured.started_at - evidence.started_at).total_seconds()
    return [Phase(name="quality", kind="load", started_s=started_s, duration_s=measured.duration_s)]


def _with_telemetry(
    run: RunRecord,
    window: tuple[float, float] | None,
    telemetry: Series,
    evidence: TrialEvidence,
    doubts: Sequence[Reason],
) -> RunRecord:
    """The run with its energy, its boards' temperature, what their clocks say, and these doubts.

    `window` counts from the run's start.
    """
    if window is None:
        return run.model_copy(update={"verdict": run.verdict.with_reasons(doubts)})
    start = run.started_s or 0.0
    from_s, to_s = start + window[0], start + window[1]
    energies = run_energies(
        telemetry,
        from_s=from_s,
        to_s=to_s,
        output_tokens=run.summary.output_tokens or 0,
        tdp_w=_tdp_w(evidence),
        tdp_boundary="gpu_boards" if evidence.request.facts.gpus else "cpu_package",
        sensor=boards_sensor(evidence.request.facts.gpus),
    )
    return run.model_copy(
        update={
            "energy": energies[0] if energies else None,
            "further_energy": energies[1:],
            "temperature_c": board_temperature_c(telemetry, from_s),
            "verdict": run.verdict.with_reasons((*clock_reasons(run, telemetry, from_s=from_s, to_s=to_s), *doubts)),
        }
    )


def _tdp_w(evidence: TrialEvidence) -> float | None:
    """What all processors draw at full load: as the inventory declares it, else as known for each GPU."""
    if evidence.request.node.tdp_w is not None:
        return evidence.request.node.tdp_w
    known = [gpu_facts(gpu.name) for gpu in evidence.request.facts.gpus]
    powers = [gpu.tdp_w for gpu in known if gpu is not None]
    return sum(powers) if powers and len(powers) == len(known) else None


def _ready_s(launch: LaunchAnswer) -> float | None:
    """From exec to the first real completion, by the node's own phases; None when it never got there."""
    if not launch.ready:
        return None
    spans = [phase for phase in launch.phases if phase.kind == "engine_start"]
    if not spans:
        return None
    return max(span.started_s + span.duration_s for span in spans) - min(span.started_s for span in spans)
