"""Objective: the one number that a spec wants best, read from a trial's runs; of several, the Pareto front."""

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from tokenpeak.metrics import STATISTICS, Direction, metric_of, with_derived
from tokenpeak.predict.demand import objective_run
from tokenpeak.records import Distribution, RunRecord, TrialRecord
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.load import ExternalLoad, OpenLoad
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import PoolingWorkload

DEFAULT_STATISTIC = "p50"
"""The statistic that a distribution's bare name stands for as an objective."""


def objective_value(trial: TrialRecord, spec: SweepSpec, *, gpus: int | None = None) -> float | None:
    """The objective of a trial; None when its runs do not give it.

    `gpus` is how many its engine takes where that is known otherwise than by the config's flags.
    """
    used = gpus if gpus is not None else trial.config.gpus
    if spec.objective.is_rate:
        rate = _max_rate_per_s(trial.runs, spec.objective_run()[0])
        return with_derived({"max_rate_per_s": rate, "gpus": used}).get(spec.objective.metric)
    run = objective_run(trial.runs, spec)
    return metric_value(run, spec.objective.metric, spec.energy, gpus=used) if run else None


def objective_direction(spec: SweepSpec) -> Direction:
    """Whether the objective is to be high or low."""
    return metric_direction(spec.objective.metric)


def metric_direction(column: str) -> Direction:
    """Whether the metric called `column` is to be high or low."""
    match = metric_of(column)
    return match[0].direction if match else "neither"


def objective_directions(spec: SweepSpec) -> tuple[Direction, ...]:
    """Which way each objective is better, the first and those of `objective.also`."""
    return tuple(metric_direction(name) for name in (spec.objective.metric, *spec.objective.also))


def objective_values(trial: TrialRecord, spec: SweepSpec) -> tuple[float | None, ...]:
    """Each objective of a trial, the first and those of `objective.also`."""
    run, gpus = objective_run(trial.runs, spec), trial.config.gpus
    also = (
        metric_value(run, name, spec.energy, gpus=gpus) if run is not None else None for name in spec.objective.also
    )
    return (objective_value(trial, spec), *also)


def metric_value(run: RunRecord, column: str, factors: EnergyFactors, *, gpus: int | None = None) -> float | None:
    """The run's metric called `column`, such as `output_tok_per_s` or `ttft_s_p95`; None when it was not measured.

    `gpus` is how many the run's engine takes; without it there is no metric of one GPU.
    """
    match = metric_of(column)
    if match is None:
        return None
    metric, statistic = match
    if metric.distribution:
        distribution: Distribution = getattr(run.summary, metric.name, Distribution(n=None))
        value: float | None = getattr(distribution, statistic or DEFAULT_STATISTIC)
        return value
    return metric_values(run, factors, gpus=gpus).get(metric.name)


def metric_values(run: RunRecord, factors: EnergyFactors, *, gpus: int | None = None) -> dict[str, float | None]:
    """Each metric of the run that is one number; None: not measured."""
    fields = {**dict(run.summary), **dict(run.energy or ()), **dict(factors)}
    numbers = {name: float(value) for name, value in fields.items() if isinstance(value, int | float)}
    spread = {name: value for name, value in fields.items() if isinstance(value, Distribution)}
    statistics = {f"{name}_{each}": getattr(value, each) for name, value in spread.items() for each in STATISTICS}
    search = run.max_rate
    searched = {
        "max_rate_per_s": search.rate_per_s if search is not None else None,
        "saturation_per_s": search.saturation_per_s if search is not None else None,
    }
    given = {"gpus": gpus, "inputs": run.workload.inputs if isinstance(run.workload, PoolingWorkload) else None}
    return with_derived(numbers | statistics | searched | given)


def column_of(metric: str) -> str:
    """The column of runs that holds a metric: a distribution's bare name stands for its median."""
    match = metric_of(metric)
    bare = match is not None and match[0].distribution and match[1] is None
    return f"{metric}_{DEFAULT_STATISTIC}" if bare else metric


def _max_rate_per_s(runs: Sequence[RunRecord], workload: str) -> float | None:
    """The highest rate within the SLO of the workload's runs; None when none held.

    A search says which it is; of rates that were tried, it is the highest that held below the first that did not.
    """
    own = [run for run in runs if run.workload.name == workload]
    searched = [
        run.max_rate.rate_per_s
        for run in own
        if run.max_rate is not None and run.max_rate.rate_per_s is not None and run.verdict.status != "invalid"
    ]
    tried = [
        (run.level.rate_per_s, run.rate_held)
        for run in own
        if isinstance(run.level, OpenLoad | ExternalLoad) and run.level.rate_per_s is not None
    ]
    breaks = min((rate for rate, held in tried if held is False), default=math.inf)
    return max([*searched, *(rate for rate, held in tried if held and rate < breaks)], default=None)


Key = TypeVar("Key", bound=Hashable)


def pareto_front(values: Mapping[Key, Sequence[float]], directions: Sequence[Direction]) -> tuple[Key, ...]:
    """The keys of which no other is at least as good in every objective and better in one.

    Equal entries are all kept; order is that of `values`.
    """
    signs = [-1.0 if direction == "lower" else 1.0 for direction in directions]
    points = {key: tuple(sign * value for sign, value in zip(signs, row, strict=True)) for key, row in values.items()}
    front: list[tuple[float, ...]] = []
    # Whatever beats a point comes before it, and is on the front or beaten by something that is.
    for point in sorted(set(points.values()), reverse=True):
        if not any(all(theirs >= ours for theirs, ours in zip(other, point, strict=True)) for other in front):
            front.append(point)
    kept = set(front)
    return tuple(key for key, point in points.items() if point in kept)


def trade_offs(
    launches: Mapping[str, Sequence[Sequence[float | None]]], directions: Sequence[Direction]
) -> dict[str, tuple[float, ...]]:
    """The configs on the front and their geometric means, from each launch's value of every objective.

    A config of which a launch lacks one is left out. Means decide: the front has no confidence.
    """
    means: dict[str, tuple[float, ...]] = {}
    for config, rows in launches.items():
        logs = [[math.log(value) for value in row if value] for row in rows]
        if logs and all(len(row) == len(directions) for row in logs):
            means[config] = tuple(math.exp(fmean(column)) for column in zip(*logs, strict=True))
    return {config: means[config] for config in pareto_front(means, directions)}
