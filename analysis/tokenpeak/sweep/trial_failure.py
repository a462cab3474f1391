"""Trial evidence, and the failure that it shows.

Why a trial gave no result follows from the node's answers, the engine's log and what the load client wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from tokenpeak.loadgen.job import QUALITY, JobOutcome, read_outcome
from tokenpeak.node.engine_builds import is_version
from tokenpeak.node.launch import MODEL_MISSING, WRONG_ENGINE
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.records import Failure, Reason, RunRecord
from tokenpeak.records.quality import QualityMeasurement
from tokenpeak.sweep.step import Step
from tokenpeak.sweep.trial_request import TrialRequest
from tokenpeak.vllm.startup_log import classify_failure, startup_facts

_OF_THE_NODE = ("lease_lapsed", "address_taken")
"""Failures of a launch that say nothing about its config."""
_NO_SPACE = "[Errno 28] No space left on device"
OVERLAP = Reason(
    code="production_overlap",
    text="Production was started by somebody while the trial was under way, and ran beside the engine.",
)


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


def failure_of(evidence: TrialEvidence, runs: tuple[RunRecord, ...], log: str) -> Failure | None:
    """Why the trial gave no result; None when it gave one."""
    if evidence.cancelled:
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message="The sweep was interrupted.")
    if is_overlapped(evidence):
        return Failure(phase=_phase_reached(evidence), cause=OVERLAP.code, message=OVERLAP.text)
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
    if (lost := outcome_of(evidence.output).lost_host) is not None:
        return Failure(phase="load", cause="load_host_lost", message=lost)
    left_out = outcome_of(evidence.output).left_out is not None
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
    measured = quality_of(evidence)
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


def says_nothing_of_config(failure: Failure) -> bool:
    """Whether the trial is to be made again: its config is not to blame."""
    return failure.cause in ("interrupted", "node_unreachable", "load_host_lost", OVERLAP.code)


def is_overlapped(evidence: TrialEvidence) -> bool:
    """Whether somebody started production during the trial, as the controller or the node saw it."""
    return evidence.overlapped or evidence.finish.production_overlap_unix_s is not None


def _phase_reached(evidence: TrialEvidence) -> str:
    """The last step that was begun."""
    return max(evidence.spans, key=lambda step: evidence.spans[step][0], default="launch")


def outcome_of(output: Path | None) -> JobOutcome:
    """How the client says that its job ended; nothing special when it did not get to write."""
    try:
        return JobOutcome() if output is None else read_outcome(output)
    except ValidationError:
        return JobOutcome()


def quality_of(evidence: TrialEvidence) -> QualityMeasurement | None:
    """That the launch's answers were measured; None where that was not asked for, or it never started."""
    if evidence.request.quality is None or evidence.output is None or not evidence.launch.ready:
        return None
    try:
        return QualityMeasurement.model_validate_json((evidence.output / QUALITY).read_bytes())
    except (OSError, ValidationError):
        return QualityMeasurement(problem="The load client ended before it had measured the answers.")
