"""Rows of the frames from records: sweep, nodes, configs, and each trial with its runs and its series."""

from collections.abc import Mapping, Sequence
from math import exp
from typing import Literal

import polars as pl

from tokenpeak.predict.demand import objective_run
from tokenpeak.quality.answers import verdict_of, with_verdict
from tokenpeak.ranking.objective import metric_values, objective_direction, objective_value
from tokenpeak.records import Config, EndRecord, NodeFacts, RunRecord, Series, SweepRecord, TrialRecord
from tokenpeak.records.quality import AnswersQuality, QualityInterval, SweepQuality
from tokenpeak.results.power_sensor import PowerSensor
from tokenpeak.results.request_metrics import judged_under
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.load import ClosedLoad, ExternalLoad, OpenLoad, level_kind
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.columns import Row, canonical_json, flat
from tokenpeak.store.tables import CONFIGS, NODES, RUNS, SWEEPS, TRIALS

IdlePowers = dict[tuple[str, str], float]
"""Idle power by node and boundary, in W."""


def sweep_row(sweep: SweepRecord, end: EndRecord | None, spec: SweepSpec, trials: int) -> Row:
    """The row of a sweep with so many readable trials, by its spec as the reader changed it."""
    workload, level = spec.objective_run()
    values = {
        "status": "running",
        "production_downtime_s": {},
        **flat(end),
        **flat(sweep),
        **flat(sweep.provenance),
        "trials": trials,
        "objective_metric": spec.objective.metric,
        "objective_direction": objective_direction(spec),
        "objective_workload": workload,
        "objective_level": level,
        "slo": spec.slo.model_dump(exclude_none=True),
    }
    return SWEEPS.row(values)


def node_row(sweep: SweepRecord, node: NodeFacts) -> Row:
    """The row of a node; what only some of its GPUs say of themselves is no sum."""
    gpus = node.gpus
    vram = [gpu.vram_bytes for gpu in gpus if gpu.vram_bytes is not None]
    power = [gpu.power_limit_w for gpu in gpus if gpu.power_limit_w is not None]
    values = {
        **flat(gpus[0] if gpus else None),
        **flat(node.production, "production_"),
        **flat(node),
        "sweep_id": sweep.sweep_id,
        "hardware": sweep.hardware_of(node),
        "gpu_count": len(gpus),
        "gpu_name": " + ".join(sorted({gpu.name for gpu in gpus})) or None,
        "vram_bytes": sum(vram) if gpus and len(vram) == len(gpus) else None,
        "gpu_power_limit_w": sum(power) if gpus and len(power) == len(gpus) else None,
    }
    return NODES.row(values)


def config_rows(sweep: SweepRecord, quality: SweepQuality | None) -> dict[tuple[str, str], Row]:
    """The configs of all plans by hardware and id, feasible ones first."""
    rows: dict[tuple[str, str], Row] = {}
    for plan in sweep.plans:
        planned = [
            (each.config, {**flat(each), **flat(each.prediction, "predicted_"), "status": "feasible"})
            for each in plan.feasible
        ]
        planned += [
            (each.config, {"status": "dropped", "dropped_rule": each.rule, "dropped_reason": each.reason})
            for each in plan.dropped
        ]
        for config, values in planned:
            key = (plan.hardware, config.config_id)
            if key not in rows:
                rows[key] = config_row(sweep.sweep_id, plan.hardware, config, quality, values)
    return rows


def config_row(
    sweep_id: str, hardware: str, config: Config, quality: SweepQuality | None, values: Mapping[str, object]
) -> Row:
    """The row of a config of which the plan says these values."""
    own = {
        **flat(config),
        **flat(config.model, "model_"),
        "served_name": config.model.served_name,
        "config_name": config.name,
        "engine_build": config.engine,
        "forced": config.force,
        "sweep_id": sweep_id,
        "hardware": hardware,
    }
    answers = verdict_of(quality, hardware, config.config_id)
    if answers is not None:
        verdict = answers.verdict
        own |= {
            **flat(verdict, "quality_"),
            **_quality(answers),
            "quality_is_reference": answers.is_reference,
            "quality_changes": answers.changes,
            **_interval("quality_answer_kl", verdict.answer_kl),
            **_interval("quality_long_kl", verdict.long_kl),
            "quality_perplexity_ratio_low": _ratio(verdict.log_ratio, "low"),
            "quality_perplexity_ratio_high": _ratio(verdict.log_ratio, "high"),
        }
    return CONFIGS.row({"quality_examples": [], **own, **values})


def _with_energy_intervals(trial: TrialRecord, sensor: PowerSensor) -> TrialRecord:
    """The trial; where its measured energies were recorded without an interval, with one by its readings."""
    measured = (run.energy for run in trial.runs if run.energy is not None)
    if all(energy.source == "estimated_tdp" or energy.energy_low_j is not None for energy in measured):
        return trial
    from tokenpeak.results.energy import with_energy_intervals  # NumPy, which opening an archive does not need

    return with_energy_intervals(trial, sensor)


def trial_rows(
    sweep: SweepRecord,
    spec: SweepSpec,
    quality: SweepQuality | None,
    limits: Slo | None,
    sensor: PowerSensor,
    read: TrialRecord,
) -> tuple[Row, list[Row]]:
    """The rows of a trial as it was read and of its runs, judged by answers and, where given, other limits."""
    trial = _under(_with_energy_intervals(with_verdict(read, quality), sensor), limits)
    gpus = sweep.gpus_used(trial.config, trial.hardware)
    answers = verdict_of(quality, trial.hardware, trial.config.config_id)
    unproven = objective_value(_under(read, limits), spec, gpus=gpus) if answers is not None else None
    row = _trial_row(sweep.sweep_id, trial, spec, gpus, answers)
    row["objective_unproven"] = unproven if row["objective"] is None and trial.status == "ok" else None
    return row, [run_row(sweep.sweep_id, trial, run, spec.energy, gpus) for run in trial.runs]


def _under(trial: TrialRecord, slo: Slo | None) -> TrialRecord:
    """The trial with its runs judged under another SLO, where one is given."""
    return trial.model_copy(update={"runs": tuple(judged_under(run, slo) for run in trial.runs)}) if slo else trial


def _trial_row(
    sweep_id: str, trial: TrialRecord, spec: SweepSpec, gpus: int | None, answers: AnswersQuality | None
) -> Row:
    judged = objective_run(trial.runs, spec)
    seconds = dict.fromkeys(("orchestration_s", "engine_start_s", "load_s", "production_start_s"), 0.0)
    for phase in trial.phases:
        seconds[f"{phase.kind}_s"] += phase.duration_s
    measured, restoration = trial.quality, trial.restoration
    values = {
        **flat(trial),
        **flat(trial.failure, "failure_"),
        **flat(trial.startup),
        **flat(trial.prediction, "predicted_"),
        **flat(restoration, "production_"),
        **flat(trial.provenance),
        **seconds,
        **flat(measured, "quality_"),
        **_quality(answers),
        "sweep_id": sweep_id,
        "config_id": trial.config.config_id,
        "config_name": trial.config.name,
        "choices": trial.config.choices,
        "objective": objective_value(trial, spec, gpus=gpus) if trial.status == "ok" else None,
        "slo_met": judged.slo_met if judged else None,
        "ended_at": trial.ended_at,
        "restored": restoration.restored if restoration else None,
        "restoration_message": restoration.message if restoration else None,
    }
    return TRIALS.row(values)


def _quality(answers: AnswersQuality | None) -> Row:
    """The columns of a verdict on answers that trials and configs share; none without one."""
    if answers is None:
        return {"quality": None}
    verdict = answers.verdict
    return {
        "quality": verdict.status,
        "quality_reason": verdict.reason,
        **_interval("quality_kl", verdict.kl),
        "quality_top1_agreement": verdict.top1_agreement and verdict.top1_agreement.estimate,
        "quality_perplexity_ratio": _ratio(verdict.log_ratio, "estimate"),
    }


def _interval(name: str, interval: QualityInterval | None) -> Row:
    ends = {"": "estimate", "_low": "low", "_high": "high"}
    return {f"{name}{end}_nats": getattr(interval, own) for end, own in ends.items()} if interval else {}


def _ratio(log_ratio: QualityInterval | None, end: Literal["estimate", "low", "high"]) -> float | None:
    return exp(max(-50.0, min(50.0, getattr(log_ratio, end)))) if log_ratio is not None else None


def run_row(sweep_id: str, trial: TrialRecord, run: RunRecord, factors: EnergyFactors, gpus: int | None) -> Row:
    """The row of a run, and `choices` of its trial; `gpus` is how many its engine takes."""
    level, energy, max_rate, steady = run.level, run.energy, run.max_rate, run.steady_state
    measured = [each for each in (energy, *run.further_energy) if each and each.source != "estimated_tdp"]
    per_token = {each.boundary: each.energy_j_per_output_tok for each in measured}
    preemptions = run.engine.preemptions if run.engine is not None else None
    values = {
        **flat(max_rate),
        **flat(max_rate, "max_rate_"),
        **flat(energy),
        **flat(energy, "energy_"),
        **metric_values(run, factors, gpus=gpus),
        **flat(trial),
        **flat(run.summary),
        **flat(run),
        **flat(run.client, "client_"),
        **flat(run.engine, "engine_"),
        **flat(steady, "queue_"),
        "sweep_id": sweep_id,
        "config_id": trial.config.config_id,
        "config_name": trial.config.name,
        "trial_status": trial.status,
        "workload_name": run.workload.name,
        "workload_kind": run.workload.kind,
        "level_kind": level_kind(level),
        "concurrency": level.concurrency if isinstance(level, ClosedLoad | ExternalLoad) else None,
        "rate_per_s": level.rate_per_s if isinstance(level, OpenLoad | ExternalLoad) else None,
        "slo": run.slo.model_dump(exclude_none=True),
        "verdict": run.verdict.status,
        "verdict_codes": [reason.code for reason in run.verdict.reasons],
        "verdict_reasons": [reason.text for reason in run.verdict.reasons],
        "well_measured": run.verdict.well_measured,
        "overloaded": run.verdict.overloaded,
        "rate_held": run.rate_held,
        "cost_currency": factors.currency if factors.has_price else None,
        "steady_state": steady.state if steady else None,
        "steady_state_margin": steady.margin if steady else None,
        "percentile_intervals": run.percentile_intervals or None,
        "recomputed_share": run.summary.recomputed_share(preemptions) if preemptions is not None else None,
        "node_j_per_output_tok": per_token.get("node"),
        "cpu_j_per_output_tok": per_token.get("cpu_and_dram", per_token.get("cpu_package")),
    }
    return RUNS.row(values) | {"choices": canonical_json(trial.config.choices)}


def with_idle_power(rows: Sequence[Row], idle_w: IdlePowers) -> None:
    """Fill in the idle power of each run's energy boundary on its node, and the share that it comes to."""
    for row in rows:
        drawn_w = idle_w.get((str(row["node"]), str(row["energy_boundary"])))
        power_w = row["power_w"]
        row["idle_power_w"] = drawn_w
        row["idle_share"] = min(1.0, drawn_w / power_w) if drawn_w and isinstance(power_w, float) and power_w else None


def series_frame(sweep_id: str, trial_id: str, series: Series) -> pl.DataFrame:
    """The samples in long form; columns of another length than the clock are cut or filled with null."""
    clock = pl.DataFrame(
        {"t_s": series.t_s, **series.columns}, schema_overrides=dict.fromkeys(series.columns, pl.Float64)
    )
    return clock.unpivot(index="t_s", variable_name="quantity", value_name="value").select(
        pl.lit(sweep_id).alias("sweep_id"), pl.lit(trial_id).alias("trial_id"), "quantity", "t_s", "value"
    )
