"""Trial record, made from the node's answers, the client's measurements, and the times of the tasks."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter, ValidationError

from tokenpeak.loadgen.job import QUALITY, JobOutcome, read_outcome
from tokenpeak.node.engine_builds import is_version
from tokenpeak.node.launch import MODEL_MISSING, WRONG_ENGINE
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer, Samples
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.records import (
    Failure,
    IdlePower,
    Phase,
    Provenance,
    Reason,
    Restoration,
    RunRecord,
    Series,
    StartupFacts,
    TrialRecord,
)
from tokenpeak.records.quality import QualityMeasurement
from tokenpeak.results.board_temperature import board_temperature_c
from tokenpeak.results.energy import run_energies
from tokenpeak.results.gpu_clocks import clock_reasons
from tokenpeak.results.idle_power import idle_power as measured_idle_power
from tokenpeak.results.power_sensor import boards_sensor
from tokenpeak.results.trial_time import clock_offset_s, fill_gaps, load_phase, merged, node_phases, step_spans
from tokenpeak.results.verdict import with_reasons
from tokenpeak.sweep.node_answer import unpacked_log, unusable_reasons
from tokenpeak.sweep.step import Step
from tokenpeak.sweep.trial_request import TrialRequest
from tokenpeak.terminal import visible_log
from tokenpeak.vllm.startup_log import classify_failure, startup_facts

_OF_THE_NODE = ("lease_lapsed", "address_taken")
"""Failures of a launch that say nothing about its config."""
_NO_SPACE = "[Errno 28] No space left on device"
_OVERLAP = Reason(
    code="production_overlap",
    text="Production was started by somebody while the trial was under way, and ran beside the engine.",
)
_RUNS = TypeAdapter(tuple[RunRecord, ...])


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    """Everything that is known of a trial when it has ended. Missing answers are empty."""

    request: TrialRequest
    started_at: datetime
    started_mono_s: float
    argv: tuple[str, ...] = ()
    output: Path | None = None
    """Where the load client wrote."""
    launch: LaunchAnswer = field(default_factory=LaunchAnswer)
    finish: FinishAnswer = field(default_factory=FinishAnswer)
    spans: Mapping[Step, tuple[float, float]] = field(default_factory=dict)
    failure: str | None = None
    unreachable: str | None = None
    cancelled: bool = False
    overlapped: bool = False
    """Somebody started production during the trial."""


def failed_before_launch(evidence: TrialEvidence, reason: str, provenance: Provenance) -> TrialRecord:
    """The record of a config that no engine of this version can be asked for; production was not touched."""
    failure = Failure(phase="plan", cause="refused", message=reason)
    return _record(evidence, provenance, status="failed", failure=failure)


def trial_record(evidence: TrialEvidence, provenance: Provenance) -> tuple[TrialRecord, str]:
    """The trial's record, and its engine's log (empty when the engine never wrote one)."""
    log = _engine_log(evidence)
    started_unix_s = evidence.started_at.timestamp()
    offset_s = _offset_s(evidence)
    telemetry = _telemetry(evidence.finish.telemetry, offset_s + started_unix_s)
    windows = _measured_windows(evidence.output)
    doubts = unusable_reasons(evidence.launch, evidence.finish)
    runs = tuple(
        _doubted(_with_telemetry(run, windows.get(run.run_index), telemetry, evidence), doubts)
        for run in _read_runs(evidence.output)
    )
    if _is_overlapped(evidence):
        runs = tuple(run.model_copy(update={"verdict": with_reasons(run.verdict, (_OVERLAP,))}) for run in runs)
    failure = _failure(evidence, runs, log)
    quality = _quality(evidence)
    status = "ok" if failure is None else "interrupted" if _says_nothing_of_config(failure) else "failed"
    startup = startup_facts(log)
    if (ready_s := _ready_s(evidence.launch)) is not None:
        startup = startup.model_copy(update={"ready_s": ready_s})
    if evidence.launch.engine_version is not None:
        startup = startup.model_copy(update={"engine_version": evidence.launch.engine_version})
    launched = {name: getattr(evidence.launch, name) for name in ("engine_digest", "model_digest")}
    startup = startup.model_copy(update=launched)
    spans = [
        *node_phases(evidence.launch, offset_s=offset_s, trial_started_unix_s=started_unix_s),
        *node_phases(evidence.finish, offset_s=offset_s, trial_started_unix_s=started_unix_s),
        *load_phase(runs, windows),
        *_quality_phase(quality, evidence),
    ]
    record = _record(
        evidence,
        provenance,
        status=status,
        failure=failure,
        phases=spans,
        startup=startup,
        runs=runs,
        quality=quality,
        idle_power=measured_idle_power(telemetry, spans, boards_sensor(evidence.request.facts.gpus)),
        series=merged(_read_metrics(evidence.output), telemetry),
        restoration=_restoration(evidence),
    )
    return record, log


def _record(
    evidence: TrialEvidence,
    provenance: Provenance,
    *,
    status: str,
    failure: Failure | None,
    phases: list[Phase] | None = None,
    startup: StartupFacts | None = None,
    runs: tuple[RunRecord, ...] = (),
    quality: QualityMeasurement | None = None,
    idle_power: tuple[IdlePower, ...] = (),
    series: Series | None = None,
    restoration: Restoration | None = None,
) -> TrialRecord:
    request = evidence.request
    duration_s = time.monotonic() - evidence.started_mono_s
    return TrialRecord.model_validate(
        {
            "sweep_id": request.sweep_id,
            "trial_id": request.trial_id,
            "node": request.node.name,
            "hardware": request.hardware,
            "config": request.config,
            "config_class": request.planned.config_class,
            "replicate": request.replicate,
            "holdout": request.holdout,
            "simulated": request.facts.simulated,
            "status": status,
            "failure": failure,
            "started_at": evidence.started_at,
            "duration_s": duration_s,
            "argv": evidence.argv,
            "phases": fill_gaps(
                phases or [], duration_s, step_spans(evidence.spans.items(), evidence.started_at.timestamp())
            ),
            "startup": startup or StartupFacts(),
            "idle_power": idle_power,
            "runs": runs,
            "quality": quality,
            "left_out": _outcome(evidence.output).left_out,
            "series": series or Series(),
            "restoration": restoration,
            "prediction": request.planned.prediction,
            "provenance": provenance,
        }
    )


def _failure(evidence: TrialEvidence, runs: tuple[RunRecord, ...], log: str) -> Failure | None:
    """Why the trial gave no result; None when it gave one."""
    if evidence.cancelled:
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message="The sweep was interrupted.")
    if _is_overlapped(evidence):
        return Failure(phase=_phase_reached(evidence), cause=_OVERLAP.code, message=_OVERLAP.text)
    if evidence.unreachable:
        return Failure(phase=_phase_reached(evidence), cause="node_unreachable", message=evidence.unreachable)
    if evidence.launch.ready is None:
        reason = evidence.failure or "The node's launch command gave no answer."
        return Failure(phase="launch", cause="interrupted", message=reason)
    if evidence.launch.failure_phase in _OF_THE_NODE:
        reason = evidence.launch.message or "The node's lease lapsed and its guard gave it back."
        return Failure(phase="launch", cause="interrupted", message=reason)
    if (wrong := _wrong_engine(evidence, log)) is not None:
        return wrong
    if evidence.launch.failure_phase == MODEL_MISSING:
        return Failure(phase="launch", cause=MODEL_MISSING, message=evidence.launch.message or "It is not there.")
    if not evidence.launch.ready:
        phase = evidence.launch.failure_phase or "engine_start"
        return _full_disk(log, phase) or classify_failure(
            log,
            phase=phase,
            exit_status=evidence.launch.exit_status,
            timed_out=bool(evidence.launch.timed_out),
        )
    if evidence.finish.given_back_by == "guard":
        reason = "The node's guard gave it back while the trial was under way: its lease or its deadline had passed."
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message=reason)
    if evidence.finish.given_back_by not in (None, "finish"):
        # Whoever gave it back ended the engine, and another's may have answered in its place.
        reason = "The node was taken from this trial while it was under way: by another sweep, or by make restore."
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message=reason)
    if (lost := _outcome(evidence.output).lost_host) is not None:
        return Failure(phase="load", cause="load_host_lost", message=lost)
    left_out = _outcome(evidence.output).left_out is not None
    expected = 1 if left_out else sum(len(plan.levels) for plan in evidence.request.spec.workloads)
    is_whole = len(runs) == expected and any(run.summary.requests_ok for run in runs)
    if evidence.finish.engine_ran is False and not (is_whole and _died_after_load(evidence)):
        # Whatever requests ended well before: a config whose engine does not outlive the load has failed.
        return _full_disk(log, "load") or classify_failure(
            log, phase="load", exit_status=evidence.finish.exit_status, timed_out=False
        )
    if evidence.failure is None and is_whole:
        return None
    found = _full_disk(log, "load") or classify_failure(log, phase="load", exit_status=None, timed_out=False)
    if evidence.failure is not None and found.cause in ("unknown", "refused"):
        # The client failed, and the engine's log knows nothing of it.
        return Failure(phase="load", cause="interrupted", message=evidence.failure)
    if found.cause != "unknown":
        return found
    reason = f"No request of {len(runs)} runs ended well; {expected} runs were requested."
    return Failure(phase="load", cause="load_failed", message=reason, evidence=found.evidence)


def _died_after_load(evidence: TrialEvidence) -> bool:
    """Whether the engine outlived the load and ended while its answers were measured: their quality is unknown then."""
    measured = _quality(evidence)
    return measured is not None and measured.problem is not None and measured.is_begun


def _wrong_engine(evidence: TrialEvidence, log: str) -> Failure | None:
    """That another version ran than was asked for; by the log of an engine that reports none."""
    if evidence.launch.failure_phase == WRONG_ENGINE:
        message = evidence.launch.message or "Another engine than asked for was started."
        return Failure(phase="launch", cause=WRONG_ENGINE, message=message)
    asked, logged = evidence.request.asked_version, startup_facts(log).engine_version
    if evidence.launch.engine_version is not None or not evidence.launch.ready or is_version(asked, logged):
        return None
    return Failure(
        phase="launch", cause=WRONG_ENGINE, message=f"vLLM {asked} was asked for, and the engine's log says {logged}."
    )


def _full_disk(log: str, phase: str) -> Failure | None:
    """What a full disk did to an engine says nothing of its config: the trial is to be made again."""
    if _NO_SPACE not in log:
        return None
    return Failure(phase=phase, cause="interrupted", message=f"The node's disk is full: the engine met '{_NO_SPACE}'.")


def _says_nothing_of_config(failure: Failure) -> bool:
    return failure.cause in ("interrupted", "node_unreachable", "load_host_lost", _OVERLAP.code)


def _is_overlapped(evidence: TrialEvidence) -> bool:
    return evidence.overlapped or evidence.finish.production_overlap_unix_s is not None


def _phase_reached(evidence: TrialEvidence) -> str:
    """The last step that was begun."""
    return max(evidence.spans, key=lambda step: evidence.spans[step][0], default="launch")


def _offset_s(evidence: TrialEvidence) -> float:
    answers: tuple[tuple[Step, LaunchAnswer | FinishAnswer], ...] = (
        ("launch", evidence.launch),
        ("finish", evidence.finish),
    )
    for step, answer in answers:
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


def _telemetry(samples: Samples, zero_unix_s: float) -> Series:
    """The node's samples with times after the trial's start; `zero_unix_s` is that start on the node's clock."""
    return Series(t_s=tuple(round(t - zero_unix_s, 3) for t in samples.t_s), columns=dict(samples.columns))


def _read_runs(output: Path | None) -> tuple[RunRecord, ...]:
    """What the client measured; nothing when it did not get to write."""
    path = output / "runs.json" if output else None
    if path is None or not path.is_file():
        return ()
    try:
        return tuple(sorted(_RUNS.validate_json(path.read_bytes()), key=lambda run: run.run_index))
    except ValidationError:
        return ()  # a client that was killed in the middle of writing; the trial is then a failed one


def _outcome(output: Path | None) -> JobOutcome:
    """How the client says that its job ended; nothing special when it did not get to write."""
    try:
        return JobOutcome() if output is None else read_outcome(output)
    except ValidationError:
        return JobOutcome()


def _quality(evidence: TrialEvidence) -> QualityMeasurement | None:
    """That the launch's answers were measured; None where that was not asked for, or it never started."""
    if evidence.request.quality is None or evidence.output is None or not evidence.launch.ready:
        return None
    try:
        return QualityMeasurement.model_validate_json((evidence.output / QUALITY).read_bytes())
    except (OSError, ValidationError):
        return QualityMeasurement(problem="The load client ended before it had measured the answers.")


def _quality_phase(measured: QualityMeasurement | None, evidence: TrialEvidence) -> list[Phase]:
    """The span of the trial in which its answers were measured."""
    if measured is None or measured.started_at is None:
        return []
    started_s = (measured.started_at - evidence.started_at).total_seconds()
    return [Phase(name="quality", kind="load", started_s=started_s, duration_s=measured.duration_s)]


def _read_metrics(output: Path | None) -> Series:
    path = output / "metrics.json" if output else None
    if path is None or not path.is_file():
        return Series()
    try:
        return Series.model_validate(json.loads(path.read_text()))
    except ValueError:
        return Series()  # as above


def _measured_windows(output: Path | None) -> dict[int, tuple[float, float]]:
    """For each run: when its first measured request was due and its last token came, seconds after the run's start."""
    path = output / "requests.parquet" if output else None
    if path is None or not path.is_file():
        return {}
    try:
        requests = pl.read_parquet(path, columns=["run_index", "phase", "due_s", "last_token_s"])
    except (pl.exceptions.PolarsError, OSError):
        return {}  # a client that was killed in the middle of writing
    windows = requests.group_by("run_index").agg(
        pl.col("due_s").filter(pl.col("phase") == "measured").min(),
        # The probes of a search count from starts of their own.
        pl.col("last_token_s").filter(pl.col("phase") != "probe").max(),
    )
    return {
        run_index: (due_s, last_token_s)
        for run_index, due_s, last_token_s in windows.iter_rows()
        if due_s is not None and last_token_s is not None
    }


def _with_telemetry(
    run: RunRecord, window: tuple[float, float] | None, telemetry: Series, evidence: TrialEvidence
) -> RunRecord:
    """The run with its energy, its boards' temperature, and what their clocks say; `window` counts from its start."""
    if window is None:
        return run
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
            "verdict": with_reasons(run.verdict, clock_reasons(run, telemetry, from_s=from_s, to_s=to_s)),
        }
    )


def _doubted(run: RunRecord, doubts: Sequence[Reason]) -> RunRecord:
    return run.model_copy(update={"verdict": with_reasons(run.verdict, doubts)}) if doubts else run


def _tdp_w(evidence: TrialEvidence) -> float | None:
    """What all processors draw at full load: as the inventory declares it, else as known for each GPU."""
    if evidence.request.node.tdp_w is not None:
        return evidence.request.node.tdp_w
    known = [gpu_facts(gpu.name) for gpu in evidence.request.facts.gpus]
    found = [gpu.tdp_w for gpu in known if gpu is not None]
    return sum(found) if found and len(found) == len(known) else None


def _ready_s(launch: LaunchAnswer) -> float | None:
    """From exec to the first real completion, by the node's own phases; None when it never got there."""
    if not launch.ready:
        return None
    spans = [phase for phase in launch.phases if phase.kind == "engine_start"]
    if not spans:
        return None
    return max(span.started_s + span.duration_s for span in spans) - min(span.started_s for span in spans)


def _restoration(evidence: TrialEvidence) -> Restoration | None:
    outcome = evidence.finish.restoration
    if outcome is None:
        return None
    return Restoration(**{name: getattr(outcome, name) for name in Restoration.model_fields})
