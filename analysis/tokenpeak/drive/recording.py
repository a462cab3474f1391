"""A trial's record from the evidence that it left: what the node answered, what the client measured, when tasks ran."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

from tokenpeak.drive.clocks import clock_reasons
from tokenpeak.drive.energy import run_energy
from tokenpeak.drive.node_answer import unpacked_log, unusable_reasons
from tokenpeak.drive.order import TrialOrder
from tokenpeak.drive.timeline import clock_offset_s, fill_gaps, load_phase, merged, node_phases, task_spans
from tokenpeak.load.job import LEFT_OUT, LOST_HOST
from tokenpeak.load.verdict import with_reasons
from tokenpeak.plan.engine_log import classify_failure, startup_facts
from tokenpeak.plan.hardware import gpu_facts
from tokenpeak.records import (
    Failure,
    Phase,
    Provenance,
    Reason,
    Restoration,
    RunRecord,
    Series,
    StartupFacts,
    TrialRecord,
)
from tokenpeak.terminal import visible_log

_OF_THE_NODE = ("lease_lapsed", "address_taken")
"""Failures of a launch that say nothing about its config."""
_NO_SPACE = "[Errno 28] No space left on device"
_OVERLAP = Reason(
    code="production_overlap",
    text="Production was started by somebody while the trial was under way, and ran beside the engine.",
)
_RUNS = TypeAdapter(tuple[RunRecord, ...])


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is known of a trial when it has ended. Missing answers are empty."""

    order: TrialOrder
    started_at: datetime
    started_mono_s: float
    argv: tuple[str, ...] = ()
    output: Path | None = None
    """Where the load client wrote."""
    launch: Mapping[str, Any] = field(default_factory=dict)
    finish: Mapping[str, Any] = field(default_factory=dict)
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    failure: str | None = None
    unreachable: str | None = None
    cancelled: bool = False
    overlapped: bool = False
    """Somebody started production during the trial."""


def failed_before_launch(evidence: Evidence, reason: str, provenance: Provenance) -> TrialRecord:
    """The record of a config that no engine of this version can be asked for; production was not touched."""
    failure = Failure(phase="plan", cause="refused", message=reason)
    return _record(evidence, provenance, status="failed", failure=failure)


def trial_record(evidence: Evidence, provenance: Provenance) -> tuple[TrialRecord, str]:
    """The trial's record, and its engine's log (empty when the engine never wrote one)."""
    log = _engine_log(evidence)
    started_unix_s = evidence.started_at.timestamp()
    offset_s = _offset_s(evidence)
    telemetry = _telemetry(evidence.finish, offset_s + started_unix_s)
    windows = _measured_windows(evidence.output)
    doubts = unusable_reasons({"launch": evidence.launch, "finish": evidence.finish})
    runs = tuple(
        _doubted(_with_telemetry(run, windows.get(run.run_index), telemetry, evidence), doubts)
        for run in _read_runs(evidence.output)
    )
    if _is_overlapped(evidence):
        runs = tuple(run.model_copy(update={"verdict": with_reasons(run.verdict, (_OVERLAP,))}) for run in runs)
    failure = _failure(evidence, runs, log)
    status = "ok" if failure is None else "interrupted" if _says_nothing_of_config(failure) else "failed"
    startup = startup_facts(log)
    if (ready_s := _ready_s(evidence.launch)) is not None:
        startup = startup.model_copy(update={"ready_s": ready_s})
    spans = [
        *node_phases(evidence.launch, offset_s=offset_s, trial_started_unix_s=started_unix_s),
        *node_phases(evidence.finish, offset_s=offset_s, trial_started_unix_s=started_unix_s),
        *load_phase(runs, windows),
    ]
    record = _record(
        evidence,
        provenance,
        status=status,
        failure=failure,
        phases=spans,
        startup=startup,
        runs=runs,
        series=merged(_read_metrics(evidence.output), telemetry),
        restoration=_restoration(evidence),
    )
    return record, log


def _record(
    evidence: Evidence,
    provenance: Provenance,
    *,
    status: str,
    failure: Failure | None,
    phases: list[Phase] | None = None,
    startup: StartupFacts | None = None,
    runs: tuple[RunRecord, ...] = (),
    series: Series | None = None,
    restoration: Restoration | None = None,
) -> TrialRecord:
    order = evidence.order
    duration_s = time.monotonic() - evidence.started_mono_s
    return TrialRecord.model_validate(
        {
            "sweep_id": order.sweep_id,
            "trial_id": order.trial_id,
            "node": order.node.name,
            "hardware": order.facts.hardware,
            "config": order.config,
            "config_class": order.planned.config_class,
            "replicate": order.replicate,
            "other_requests": order.other_requests,
            "simulated": order.facts.simulated,
            "status": status,
            "failure": failure,
            "started_at": evidence.started_at,
            "duration_s": duration_s,
            "argv": evidence.argv,
            "phases": fill_gaps(phases or [], duration_s, task_spans(evidence.spans, evidence.started_at.timestamp())),
            "startup": startup or StartupFacts(),
            "runs": runs,
            "left_out": _told(evidence.output, LEFT_OUT),
            "series": series or Series(),
            "restoration": restoration,
            "prediction": order.planned.prediction,
            "provenance": provenance,
        }
    )


def _failure(evidence: Evidence, runs: tuple[RunRecord, ...], log: str) -> Failure | None:
    """Why the trial gave no result; None when it gave one."""
    if evidence.cancelled:
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message="The sweep was told to end.")
    if _is_overlapped(evidence):
        return Failure(phase=_phase_reached(evidence), cause=_OVERLAP.code, message=_OVERLAP.text)
    if evidence.unreachable:
        return Failure(phase=_phase_reached(evidence), cause="node_unreachable", message=evidence.unreachable)
    if "ready" not in evidence.launch:
        reason = evidence.failure or "The node's launch command gave no answer."
        return Failure(phase="launch", cause="interrupted", message=reason)
    if evidence.launch.get("failure_phase") in _OF_THE_NODE:
        reason = str(evidence.launch.get("message") or "The node's lease lapsed and its guard gave it back.")
        return Failure(phase="launch", cause="interrupted", message=reason)
    if not evidence.launch["ready"]:
        phase = str(evidence.launch.get("failure_phase") or "engine_start")
        return _full_disk(log, phase) or classify_failure(
            log,
            phase=phase,
            exit_status=evidence.launch.get("exit_status"),
            timed_out=bool(evidence.launch.get("timed_out")),
        )
    if evidence.finish.get("given_back_by") == "guard":
        reason = "The node's guard gave it back while the trial was under way: its lease or its deadline had passed."
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message=reason)
    if evidence.finish.get("given_back_by") not in (None, "finish"):
        # Whoever gave it back ended the engine, and another's may have answered in its place.
        reason = "The node was taken from this trial while it was under way: by another sweep, or by make restore."
        return Failure(phase=_phase_reached(evidence), cause="interrupted", message=reason)
    if (lost := _told(evidence.output, LOST_HOST)) is not None:
        return Failure(phase="load", cause="load_host_lost", message=lost)
    if evidence.finish.get("engine_ran") is False:
        # Whatever requests ended well before: a config whose engine does not outlive the load has failed.
        return _full_disk(log, "load") or classify_failure(
            log, phase="load", exit_status=evidence.finish.get("exit_status"), timed_out=False
        )
    left_out = _told(evidence.output, LEFT_OUT) is not None
    expected = 1 if left_out else sum(len(plan.levels) for plan in evidence.order.spec.workloads)
    if evidence.failure is None and len(runs) == expected and any(run.summary.requests_ok for run in runs):
        return None
    found = _full_disk(log, "load") or classify_failure(log, phase="load", exit_status=None, timed_out=False)
    if evidence.failure is not None and found.cause in ("unknown", "refused"):
        # The client failed, and the engine's log knows nothing of it.
        return Failure(phase="load", cause="interrupted", message=evidence.failure)
    if found.cause != "unknown":
        return found
    reason = f"No request of {len(runs)} runs ended well; {expected} runs were ordered."
    return Failure(phase="load", cause="load_failed", message=reason, evidence=found.evidence)


def _full_disk(log: str, phase: str) -> Failure | None:
    """What a full disk did to an engine says nothing of its config: the trial is to be made again."""
    if _NO_SPACE not in log:
        return None
    return Failure(phase=phase, cause="interrupted", message=f"The node's disk is full: the engine met '{_NO_SPACE}'.")


def _says_nothing_of_config(failure: Failure) -> bool:
    return failure.cause in ("interrupted", "node_unreachable", "load_host_lost", _OVERLAP.code)


def _is_overlapped(evidence: Evidence) -> bool:
    return evidence.overlapped or evidence.finish.get("production_overlap_unix_s") is not None


def _phase_reached(evidence: Evidence) -> str:
    """The last thing that was begun: the last task of Ansible's that is known."""
    if not evidence.spans:
        return "launch"
    return max(evidence.spans, key=lambda task: evidence.spans[task][0]).rpartition(" | ")[2]


def _offset_s(evidence: Evidence) -> float:
    for command, answer in (("launch", evidence.launch), ("finish", evidence.finish)):
        for task, (_, ended) in evidence.spans.items():
            if answer and task.endswith(f"node | {command}"):
                return clock_offset_s(answer, ended, is_local=evidence.order.node.is_local)
    return 0.0


def _engine_log(evidence: Evidence) -> str:
    """The engine's whole log as finish sent it, safe to be shown; else the tail that launch gave."""
    packed = evidence.finish.get("log")
    if packed:
        try:
            return visible_log(unpacked_log(packed))
        except ValueError as error:
            return f"(the log did not arrive whole: {error})\n{evidence.launch.get('log_tail', '')}"
    return visible_log(str(evidence.launch.get("log_tail") or ""))


def _telemetry(finish: Mapping[str, Any], zero_unix_s: float) -> Series:
    """The node's samples with times after the trial's start; `zero_unix_s` is that start on the node's clock."""
    sampled = finish.get("telemetry") or {}
    return Series(
        t_s=tuple(round(t - zero_unix_s, 3) for t in sampled.get("t_s", ())),
        columns={name: tuple(column) for name, column in sampled.get("columns", {}).items()},
    )


def _read_runs(output: Path | None) -> tuple[RunRecord, ...]:
    """What the client measured; nothing when it did not get to write."""
    path = output / "runs.json" if output else None
    if path is None or not path.is_file():
        return ()
    try:
        return tuple(sorted(_RUNS.validate_json(path.read_bytes()), key=lambda run: run.run_index))
    except ValidationError:
        return ()  # a client that was killed in the middle of writing; the trial is then a failed one


def _told(output: Path | None, name: str) -> str | None:
    """What the client has to tell in this file, in its words; None when it had nothing to."""
    path = output / name if output else None
    return path.read_text() if path is not None and path.is_file() else None


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
    run: RunRecord, window: tuple[float, float] | None, telemetry: Series, evidence: Evidence
) -> RunRecord:
    """The run with its energy, and what the GPUs' clocks say against it; `window` is in seconds after its start."""
    if window is None:
        return run
    start = run.started_s or 0.0
    from_s, to_s = start + window[0], start + window[1]
    return run.model_copy(
        update={
            "energy": run_energy(
                telemetry,
                from_s=from_s,
                to_s=to_s,
                output_tokens=run.summary.output_tokens or 0,
                tdp_w=_tdp_w(evidence),
                tdp_boundary="gpu_boards" if evidence.order.facts.gpus else "cpu_package",
            ),
            "verdict": with_reasons(run.verdict, clock_reasons(run, telemetry, from_s=from_s, to_s=to_s)),
        }
    )


def _doubted(run: RunRecord, doubts: Sequence[Reason]) -> RunRecord:
    return run.model_copy(update={"verdict": with_reasons(run.verdict, doubts)}) if doubts else run


def _tdp_w(evidence: Evidence) -> float | None:
    """What all processors draw at full load: as the inventory declares it, else as known for each GPU."""
    if evidence.order.node.tdp_w is not None:
        return evidence.order.node.tdp_w
    known = [gpu_facts(gpu.name) for gpu in evidence.order.facts.gpus]
    found = [gpu.tdp_w for gpu in known if gpu is not None]
    return sum(found) if found and len(found) == len(known) else None


def _ready_s(launch: Mapping[str, Any]) -> float | None:
    """From exec to the first real completion, by the node's own phases; None when it never got there."""
    if not launch.get("ready"):
        return None
    spans = [phase for phase in launch.get("phases", ()) if phase["kind"] == "engine_start"]
    if not spans:
        return None
    return float(max(p["started_s"] + p["duration_s"] for p in spans) - min(p["started_s"] for p in spans))


def _restoration(evidence: Evidence) -> Restoration | None:
    told = evidence.finish.get("restoration")
    if told is None:
        return None
    return Restoration.model_validate({key: told[key] for key in Restoration.model_fields if key in told})
