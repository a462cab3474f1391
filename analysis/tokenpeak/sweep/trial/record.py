"""Trial record, made from the node's answers, the client's measurements, and the times of the tasks."""

import base64
import binascii
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter, ValidationError

from tokenpeak.node.machine import clock
from tokenpeak.node.protocol import parts
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.node.protocol.parts import Series
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.records import (
    Failure,
    Phase,
    Provenance,
    Reason,
    RunRecord,
    TrialRecord,
)
from tokenpeak.records.quality import QualityMeasurement
from tokenpeak.results.board_readings import board_temperature_c, clock_reasons
from tokenpeak.results.board_readings import idle_power as measured_idle_power
from tokenpeak.results.energy import run_energies
from tokenpeak.results.power_sensor import boards_sensor
from tokenpeak.results.trial_time import clock_offset_s, fill_gaps, load_phase, merged, node_phases, step_spans
from tokenpeak.sweep.ansible.dispatch import Step
from tokenpeak.sweep.ansible.result import recorded
from tokenpeak.sweep.trial.failure import (
    OVERLAP,
    TrialEvidence,
    failure_of,
    is_overlapped,
    is_retryable,
    outcome_of,
    quality_of,
)
from tokenpeak.terminal import visible_log
from tokenpeak.vllm.startup_log import startup_facts

LOG_LIMIT_BYTES = 16 << 20
"""Of an engine's log, unpacked; a node sends 8 MiB at most."""


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


def unpacked_log(packed: str) -> str:
    """The text of an engine's log as a node packs it, cut at a bound; raises ValueError for what is no such pack."""
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(packed), LOG_LIMIT_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from error
    cut = f"\n[cut at {LOG_LIMIT_BYTES} bytes]\n" if unpacking.unconsumed_tail else ""
    return raw.decode(errors="replace") + cut


_RUNS = TypeAdapter(tuple[RunRecord, ...])


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
    windows = _measured_windows(evidence.output)
    doubts = unusable_reasons(evidence.launch, evidence.finish)
    runs = tuple(
        _doubted(_with_telemetry(run, windows.get(run.run_index), telemetry, evidence), doubts)
        for run in _read_runs(evidence.output)
    )
    if is_overlapped(evidence):
        runs = tuple(run.model_copy(update={"verdict": run.verdict.with_reasons((OVERLAP,))}) for run in runs)
    failure = (
        failure_of(evidence, runs, log) if refused is None else Failure(phase="plan", cause="refused", message=refused)
    )
    quality = quality_of(evidence)
    status = "ok" if failure is None else "interrupted" if is_retryable(failure) else "failed"
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
    duration_s = clock.boot_s() - evidence.started_boot_s
    record = TrialRecord(
        sweep_id=request.sweep_id,
        trial_id=request.trial_id,
        node=request.node.name,
        hardware=request.hardware,
        config=request.config,
        config_class=request.planned.config_class,
        replicate=request.replicate,
        holdout=request.holdout,
        simulated=request.facts.simulated,
        status=status,
        failure=failure,
        started_at=evidence.started_at,
        duration_s=duration_s,
        argv=evidence.argv,
        phases=fill_gaps(spans, duration_s, step_spans(evidence.spans.items(), started_unix_s)),
        startup=startup,
        idle_power=measured_idle_power(telemetry, spans, boards_sensor(request.facts.gpus)),
        runs=runs,
        quality=quality,
        left_out=outcome_of(evidence.output).left_out,
        series=merged(_read_metrics(evidence.output), telemetry),
        restoration=recorded(evidence.finish.restoration),
        prediction=request.planned.prediction,
        provenance=provenance,
    )
    return record, log


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


def _telemetry(samples: Series, zero_unix_s: float) -> Series:
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
        return parts.series(json.loads(path.read_text()))
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
            "verdict": run.verdict.with_reasons(clock_reasons(run, telemetry, from_s=from_s, to_s=to_s)),
        }
    )


def _doubted(run: RunRecord, doubts: Sequence[Reason]) -> RunRecord:
    return run.model_copy(update={"verdict": run.verdict.with_reasons(doubts)}) if doubts else run


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
