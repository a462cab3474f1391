"""Rows of one trial in the frames: its own, its runs', its series in long form, and its config's."""

from dataclasses import dataclass, field

import polars as pl

from tokenpeak.predict.demand import objective_run
from tokenpeak.quality.applied import verdict_of, with_verdict
from tokenpeak.ranking.objective import objective_value
from tokenpeak.records import Series, SweepRecord, TrialRecord
from tokenpeak.records.quality import SweepQuality
from tokenpeak.results.power_sensor import PowerSensor, with_energy_intervals
from tokenpeak.results.slo_met import judged_under
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import Slo
from tokenpeak.store.columns import canonical_json
from tokenpeak.store.configs import Row, config_row, predicted
from tokenpeak.store.quality import trial_quality
from tokenpeak.store.runs import idle_powers, run_row

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
