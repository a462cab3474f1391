"""Rows of the frames from records: of a trial, its runs, its series, and the configs that were planned or launched."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

import polars as pl

from tokenpeak.metrics import DERIVED, STATISTICS
from tokenpeak.predict.demand import objective_run
from tokenpeak.quality.recorded import verdict_of, with_verdict
from tokenpeak.ranking.objective import metric_values, objective_value
from tokenpeak.records import (
    ClientHealth,
    Config,
    Distribution,
    EngineCounters,
    MaxRate,
    Plan,
    Prediction,
    RunRecord,
    RunSummary,
    Series,
    SweepRecord,
    TrialRecord,
)
from tokenpeak.records.quality import AnswersQuality, QualityInterval, QualityMeasurement, QualityVerdict, SweepQuality
from tokenpeak.results.power_sensor import PowerSensor, with_energy_intervals
from tokenpeak.results.preemption import recomputed_share
from tokenpeak.results.slo_met import judged_under
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import AnyLevel, ClosedLoad, ExternalLoad, OpenLoad, Slo, StagedLoad
from tokenpeak.store.tables import canonical_json

Row = dict[str, object]


def config_rows(sweep: SweepRecord) -> dict[tuple[str, str], Row]:
    """The configs of all plans by hardware and id, feasible ones first."""
    rows: dict[tuple[str, str], Row] = {}
    for plan in sweep.plans:
        for row in _plan_rows(sweep.sweep_id, plan):
            rows.setdefault((plan.hardware, str(row["config_id"])), row)
    return rows


def _plan_rows(sweep_id: str, plan: Plan) -> Iterable[Row]:
    for planned in plan.feasible:
        row = config_row(sweep_id, plan.hardware, planned.config, "feasible")
        yield (
            row
            | predicted(planned.prediction)
            | {
                "config_class": planned.config_class,
                "advice": list(planned.advice),
            }
        )
    for dropped in plan.dropped:
        row = config_row(sweep_id, plan.hardware, dropped.config, "dropped")
        yield row | {"dropped_rule": dropped.rule, "dropped_reason": dropped.reason}


def config_row(sweep_id: str, hardware: str, config: Config, status: str) -> Row:
    """The row of a config that nothing is known of yet but what it is."""
    return {
        "sweep_id": sweep_id,
        "hardware": hardware,
        "config_id": config.config_id,
        "config_name": config.name,
        "config_class": None,
        "status": status,
        "dropped_rule": None,
        "dropped_reason": None,
        "model_name": config.model.name,
        "model_revision": config.model.revision,
        "served_name": config.model.served_name,
        "engine_version": config.engine_version,
        "engine_build": config.engine,
        "forced": config.force,
        "flags": canonical_json(config.flags),
        "env": canonical_json(config.env),
        "choices": canonical_json(config.choices),
        "advice": [],
        "rank": None,
        "objective_mean": None,
        "objective_unproven_mean": None,
    } | predicted(None)


def predicted(prediction: Prediction | None) -> Row:
    """The columns of a prediction; all null without one."""
    return {f"predicted_{name}": getattr(prediction, name) if prediction else None for name in Prediction.model_fields}


def trial_quality(found: AnswersQuality | None, measured: QualityMeasurement | None) -> dict[str, object]:
    """A trial's columns: the verdict on its config's answers, and what measuring those of its own launch took."""
    kl = _interval("quality_kl", found.verdict.kl if found is not None else None, "_nats")
    return {
        **_verdict(found),
        **kl,
        "quality_top1_agreement": _estimate(found, "top1_agreement"),
        "quality_perplexity_ratio": _ratio(_estimate(found, "log_ratio")),
        "quality_duration_s": measured.duration_s if measured is not None else None,
        "quality_problem": measured.problem if measured is not None else None,
        "quality_accepted_tokens": measured.accepted_tokens if measured is not None else None,
        "quality_cached_tokens": measured.cached_tokens if measured is not None else None,
    }


def config_quality(found: AnswersQuality | None) -> dict[str, object]:
    """A config's columns; all null where nothing that could change its answers was measured, or had to be."""
    verdict = found.verdict if found is not None else None
    ratio = verdict.log_ratio if verdict is not None else None
    return {
        **_verdict(found),
        "quality_is_reference": found.is_reference if found is not None else None,
        "quality_changes": list(found.changes) if found is not None else [],
        **_interval("quality_kl", verdict.kl if verdict is not None else None, "_nats"),
        **_interval("quality_answer_kl", verdict.answer_kl if verdict is not None else None, "_nats"),
        **_interval("quality_long_kl", verdict.long_kl if verdict is not None else None, "_nats"),
        "quality_top1_agreement": _estimate(found, "top1_agreement"),
        "quality_perplexity_ratio": _ratio(ratio.estimate if ratio is not None else None),
        "quality_perplexity_ratio_low": _ratio(ratio.low if ratio is not None else None),
        "quality_perplexity_ratio_high": _ratio(ratio.high if ratio is not None else None),
        "quality_same_answers": verdict.same_answers if verdict is not None else None,
        "quality_tasks": verdict.tasks if verdict is not None else None,
        "quality_tasks_right": verdict.tasks_right if verdict is not None else None,
        "quality_reference_tasks_right": verdict.reference_tasks_right if verdict is not None else None,
        "quality_margin_nats": verdict.margin_nats if verdict is not None else None,
        "quality_examples": _examples(verdict),
    }


def _verdict(found: AnswersQuality | None) -> dict[str, object]:
    return {
        "quality": found.verdict.status if found is not None else None,
        "quality_reason": found.verdict.reason if found is not None else None,
    }


def _interval(name: str, found: QualityInterval | None, unit: str) -> dict[str, object]:
    return {
        f"{name}{unit}": found.estimate if found is not None else None,
        f"{name}_low{unit}": found.low if found is not None else None,
        f"{name}_high{unit}": found.high if found is not None else None,
    }


def _estimate(found: AnswersQuality | None, name: str) -> float | None:
    interval: QualityInterval | None = getattr(found.verdict, name) if found is not None else None
    return interval.estimate if interval is not None else None


def _ratio(log_ratio: float | None) -> float | None:
    return exp(max(-50.0, min(50.0, log_ratio))) if log_ratio is not None else None


def _examples(verdict: QualityVerdict | None) -> str:
    return canonical_json([each.model_dump() for each in verdict.examples] if verdict is not None else [])


def run_row(
    sweep_id: str, trial: TrialRecord, run: RunRecord, factors: EnergyFactors, gpus: int | None
) -> dict[str, object]:
    """The run's row in the order of tables.RUNS, and `choices` of its trial; `gpus` is how many its engine takes."""
    level, energy = run.level, run.energy
    values = metric_values(run, factors, gpus=gpus)
    preemptions = run.engine.preemptions if run.engine is not None else None
    return {
        "sweep_id": sweep_id,
        "trial_id": trial.trial_id,
        "run_index": run.run_index,
        "config_id": trial.config.config_id,
        "config_name": trial.config.name,
        "hardware": trial.hardware,
        "node": trial.node,
        "replicate": trial.replicate,
        "simulated": trial.simulated,
        "trial_status": trial.status,
        "workload_name": run.workload.name,
        "workload_kind": run.workload.kind,
        "workload": canonical_json(run.workload.model_dump(mode="json")),
        "level_kind": _kind(level),
        "level_label": run.level_label,
        "concurrency": level.concurrency if isinstance(level, ClosedLoad | ExternalLoad) else None,
        "rate_per_s": level.rate_per_s if isinstance(level, OpenLoad | ExternalLoad) else None,
        "level": canonical_json(level.model_dump(mode="json")),
        "slo": canonical_json(run.slo.model_dump(exclude_none=True)),
        "slo_met": run.slo_met,
        "verdict": run.verdict.status,
        "verdict_codes": [reason.code for reason in run.verdict.reasons],
        "verdict_reasons": [reason.text for reason in run.verdict.reasons],
        "well_measured": run.verdict.well_measured,
        "overloaded": run.verdict.overloaded,
        "rate_held": run.rate_held,
        "started_at": run.started_at,
        "started_s": run.started_s,
        "measured_from_s": run.measured_from_s,
        "seed": run.seed,
        **_summary(run.summary),
        **_client(run.client),
        **_engine(run.engine),
        "energy_source": energy.source if energy else None,
        "energy_boundary": energy.boundary if energy else None,
        "energy_j": energy.energy_j if energy else None,
        "energy_low_j": energy.energy_low_j if energy else None,
        "energy_high_j": energy.energy_high_j if energy else None,
        "energy_needed_s": energy.needed_s if energy else None,
        "power_w": energy.power_w if energy else None,
        "energy_j_per_output_tok": energy.energy_j_per_output_tok if energy else None,
        **{metric.name: values[metric.name] for metric in DERIVED},
        "saturation_per_s": values["saturation_per_s"],
        "cost_currency": factors.currency if factors.has_price else None,
        **_max_rate(run.max_rate),
        **_steady_state(run),
        "recomputed_share": recomputed_share(preemptions, run.summary) if preemptions is not None else None,
        "temperature_c": run.temperature_c,
        **_per_token_by_boundary(run),
        "choices": canonical_json(trial.config.choices),
    }


def idle_powers(trial: TrialRecord) -> dict[tuple[str, str], float]:
    """What a trial says of its node's idle power, by node and boundary, in W."""
    return {(trial.node, each.boundary): each.power_w for each in trial.idle_power}


def with_idle_power(rows: Sequence[dict[str, object]], idle_w: Mapping[tuple[str, str], float]) -> None:
    """Fill in the idle power of each run's energy boundary on its node, and the share that it comes to."""
    for row in rows:
        drawn_w = idle_w.get((str(row["node"]), str(row["energy_boundary"])))
        power_w = row["power_w"]
        row["idle_power_w"] = drawn_w
        row["idle_share"] = min(1.0, drawn_w / power_w) if drawn_w and isinstance(power_w, float) and power_w else None


def _per_token_by_boundary(run: RunRecord) -> dict[str, object]:
    """The energy per output token of the whole node, and of its processors; null where nothing measured it."""
    energies = [each for each in (run.energy, *run.further_energy) if each and each.source != "estimated_tdp"]
    known = {each.boundary: each.energy_j_per_output_tok for each in energies}
    return {
        "node_j_per_output_tok": known.get("node"),
        "cpu_j_per_output_tok": known.get("cpu_and_dram", known.get("cpu_package")),
    }


def _max_rate(found: MaxRate | None) -> dict[str, object]:
    """What a search for the highest rate came to; all null where there was none."""
    return {
        "max_rate_per_s": found.rate_per_s if found else None,
        "max_rate_low_per_s": found.low_per_s if found else None,
        "max_rate_high_per_s": found.high_per_s if found else None,
        "max_rate_confidence": found.confidence if found else None,
        "max_rate_ended": found.ended if found else None,
        "max_rate_probes": canonical_json([probe.model_dump() for probe in found.probes]) if found else None,
        "saturation_low_per_s": found.saturation_low_per_s if found else None,
        "saturation_high_per_s": found.saturation_high_per_s if found else None,
    }


def _steady_state(run: RunRecord) -> dict[str, object]:
    """Whether the engine kept up with the run's rate; all null where that was not recorded."""
    found = run.steady_state
    return {
        "steady_state": found.state if found else None,
        "queue_growth": found.growth if found else None,
        "queue_growth_error": found.growth_error if found else None,
        "steady_state_margin": found.margin if found else None,
        "percentile_intervals": canonical_json(run.percentile_intervals) if run.percentile_intervals else None,
    }


def _kind(level: AnyLevel) -> str:
    """closed, open, or unknown where an import does not say."""
    if isinstance(level, ExternalLoad) and level.rate_per_s is None:
        return "closed" if level.concurrency is not None else "unknown"
    if isinstance(level, StagedLoad):
        return "open" if level.open else "closed"
    return "closed" if isinstance(level, ClosedLoad) else "open"


def _summary(summary: RunSummary) -> dict[str, object]:
    row: dict[str, object] = {}
    for name, value in summary:
        if isinstance(value, Distribution):
            row |= _flat(name, value)
        elif name in ("failures", "within_limits"):
            row[name] = canonical_json(value)
        elif name == "windowed_output_tok_per_s":
            row[name] = list(summary.windowed_output_tok_per_s)
        else:
            row[name] = value
    return row


def _client(client: ClientHealth) -> dict[str, object]:
    return {
        "client_processes": client.processes,
        "client_cpu_s": client.cpu_s,
        "client_cpu_per_token_s": client.cpu_per_token_s,
        **_flat("client_dispatch_delay_s", client.dispatch_delay_s),
        **_flat("client_loop_lag_s", client.loop_lag_s),
    }


def _engine(engine: EngineCounters | None) -> dict[str, object]:
    return {f"engine_{name}": getattr(engine, name) if engine else None for name in EngineCounters.model_fields}


def _flat(name: str, distribution: Distribution) -> dict[str, object]:
    """A distribution as columns: `NAME_n`, `NAME_mean`, …, `NAME_p99`."""
    statistics = {f"{name}_{statistic}": getattr(distribution, statistic) for statistic in STATISTICS}
    return {f"{name}_n": distribution.n, **statistics}


IdlePowers = dict[tuple[str, str], float]
"""Idle power by node and boundary, in W."""


@dataclass(frozen=True, kw_only=True)
class TrialRows:
    """What one trial adds to the frames, and its config's row, which None stands for where the config was planned."""

    trial: Row
    runs: list[Row]
    series: pl.DataFrame | None
    config: Row | None
    idle_powers: IdlePowers = field(default_factory=dict)


def trial_rows(
    sweep: SweepRecord,
    spec: SweepSpec,
    quality: SweepQuality | None,
    limits: Slo | None,
    sensor: PowerSensor,
    read: TrialRecord,
) -> TrialRows:
    """The rows of a trial as it was read, its runs judged by the verdicts on answers and, where given, other limits."""
    recorded = with_energy_intervals(with_verdict(read, quality), sensor)
    trial = _under(recorded, limits) if limits else recorded
    gpus = sweep.gpus_used(trial.config, trial.hardware)
    verdict = verdict_of(quality, trial.hardware, trial.config.config_id)
    unproven = objective_value(_unjudged(read, limits), spec, gpus=gpus) if verdict is not None else None
    row = _trial_row(sweep.sweep_id, trial, spec, gpus)
    row["objective_unproven"] = unproven if row["objective"] is None and trial.status == "ok" else None
    return TrialRows(
        trial=row | trial_quality(verdict, trial.quality),
        runs=[run_row(sweep.sweep_id, trial, run, spec.energy, gpus) for run in trial.runs],
        series=_series_frame(sweep.sweep_id, trial.trial_id, trial.series) if trial.series.t_s else None,
        config=config_row(sweep.sweep_id, trial.hardware, trial.config, "unplanned"),
        idle_powers=idle_powers(recorded),
    )


def _under(trial: TrialRecord, slo: Slo) -> TrialRecord:
    """The trial with its runs judged under another SLO."""
    return trial.model_copy(update={"runs": tuple(judged_under(run, slo) for run in trial.runs)})


def _unjudged(trial: TrialRecord, limits: Slo | None) -> TrialRecord:
    """The trial as it was measured, whatever its answers are worth."""
    return _under(trial, limits) if limits else trial


def _trial_row(sweep_id: str, trial: TrialRecord, spec: SweepSpec, gpus: int | None) -> Row:
    failure, restoration, startup = trial.failure, trial.restoration, trial.startup
    judged = objective_run(trial.runs, spec)
    seconds = dict.fromkeys(("orchestration", "engine_start", "load", "production_start"), 0.0)
    for phase in trial.phases:
        seconds[phase.kind] += phase.duration_s
    return {
        "sweep_id": sweep_id,
        "trial_id": trial.trial_id,
        "config_id": trial.config.config_id,
        "config_name": trial.config.name,
        "config_class": trial.config_class,
        "hardware": trial.hardware,
        "node": trial.node,
        "replicate": trial.replicate,
        "simulated": trial.simulated,
        "status": trial.status,
        "failure_phase": failure.phase if failure else None,
        "failure_cause": failure.cause if failure else None,
        "failure_message": failure.message if failure else None,
        "failure_evidence": list(failure.evidence) if failure else [],
        "objective": objective_value(trial, spec, gpus=gpus) if trial.status == "ok" else None,
        "slo_met": judged.slo_met if judged else None,
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "duration_s": trial.duration_s,
        **{f"{kind}_s": value for kind, value in seconds.items()},
        "phases": canonical_json([phase.model_dump() for phase in trial.phases]),
        "argv": list(trial.argv),
        **startup.model_dump(),
        "restored": restoration.restored if restoration else None,
        "production_was_running": restoration.was_running if restoration else None,
        "production_downtime_s": restoration.downtime_s if restoration else None,
        "restoration_message": restoration.message if restoration else None,
        "choices": canonical_json(trial.config.choices),
        "tokenpeak_version": trial.provenance.tokenpeak_version,
        "git_revision": trial.provenance.git_revision,
        **predicted(trial.prediction),
        "holdout": trial.holdout,
        "left_out": trial.left_out,
    }


def _series_frame(sweep_id: str, trial_id: str, series: Series) -> pl.DataFrame:
    """The samples in long form; columns of another length than the clock are cut or filled with null."""
    clock = pl.DataFrame(
        {"t_s": series.t_s, **series.columns}, schema_overrides=dict.fromkeys(series.columns, pl.Float64)
    )
    return clock.unpivot(index="t_s", variable_name="quantity", value_name="value").select(
        pl.lit(sweep_id).alias("sweep_id"), pl.lit(trial_id).alias("trial_id"), "quantity", "t_s", "value"
    )
