"""The one number that a spec wants best, read from a trial's runs."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from tokenpeak.metrics import Direction, metric_of
from tokenpeak.plan.demand import objective_run
from tokenpeak.plan.spec import EnergyFactors, SweepSpec
from tokenpeak.records import BY_THE_ENGINE, OVERLOADED, Distribution, RunRecord
from tokenpeak.workload import ExternalLoad, OpenLoad

if TYPE_CHECKING:
    import polars as pl

Quantity = TypeVar("Quantity", float, "pl.Expr")
"""A number, or a column of them."""

DEFAULT_STATISTIC = "p50"
"""What a distribution's bare name stands for as an objective."""


def kwh_per_1m_output_tok(energy_j_per_output_tok: Quantity, pue: Quantity) -> Quantity:
    """Energy at the meter in kWh per million output tokens."""
    return energy_j_per_output_tok * pue * (1e6 / 3.6e6)


def co2_kg_per_1m_output_tok(kwh_per_1m: Quantity, kg_co2_per_kwh: Quantity) -> Quantity:
    """CO₂ in kg per million output tokens."""
    return kwh_per_1m * kg_co2_per_kwh


def water_l_per_1m_output_tok(kwh_per_1m: Quantity, water_l_per_kwh: Quantity) -> Quantity:
    """Water in litres per million output tokens."""
    return kwh_per_1m * water_l_per_kwh


def cost_per_1m_output_tok(output_tok_per_s: Quantity, price_per_node_hour: Quantity) -> Quantity:
    """Price of the node's time per million output tokens, in the price's currency."""
    return price_per_node_hour / (output_tok_per_s * 3600.0) * 1e6


def objective_value(runs: Sequence[RunRecord], spec: SweepSpec) -> float | None:
    """The objective of a trial with these runs; None when they cannot tell it."""
    if spec.objective.metric == "max_rate_per_s":
        return _max_rate_per_s(runs, spec.objective_run()[0])
    run = objective_run(runs, spec)
    return metric_value(run, spec.objective.metric, spec.energy) if run else None


def objective_direction(spec: SweepSpec) -> Direction:
    """Whether the objective is to be high or low."""
    return metric_direction(spec.objective.metric)


def metric_direction(column: str) -> Direction:
    """Whether the metric called `column` is to be high or low."""
    found = metric_of(column)
    return found[0].direction if found else "neither"


def objective_directions(spec: SweepSpec) -> tuple[Direction, ...]:
    """Which way each objective is better, the first and those of `objective.also`."""
    return tuple(metric_direction(name) for name in (spec.objective.metric, *spec.objective.also))


def objective_values(runs: Sequence[RunRecord], spec: SweepSpec) -> tuple[float | None, ...]:
    """Each objective of a trial with these runs, the first and those of `objective.also`."""
    run = objective_run(runs, spec)
    also = (metric_value(run, name, spec.energy) if run is not None else None for name in spec.objective.also)
    return (objective_value(runs, spec), *also)


def metric_value(run: RunRecord, column: str, factors: EnergyFactors) -> float | None:
    """The run's metric called `column`, such as `output_tok_per_s` or `ttft_s_p95`; None when it was not measured."""
    found = metric_of(column)
    if found is None:
        return None
    metric, statistic = found
    if metric.distribution:
        distribution: Distribution = getattr(run.summary, metric.name)
        value: float | None = getattr(distribution, statistic or DEFAULT_STATISTIC)
        return value
    if metric.name in type(run.summary).model_fields:
        return _number(getattr(run.summary, metric.name))
    if metric.name == "cost_per_1m_output_tok":
        if factors.price_per_node_hour is None or not run.summary.output_tok_per_s:
            return None
        return cost_per_1m_output_tok(run.summary.output_tok_per_s, factors.price_per_node_hour)
    return _energy_metric(run, metric.name, factors)


def column_of(metric: str) -> str:
    """The column of runs that holds a metric: a distribution's bare name stands for its median."""
    found = metric_of(metric)
    bare = found is not None and found[0].distribution and found[1] is None
    return f"{metric}_{DEFAULT_STATISTIC}" if bare else metric


def _energy_metric(run: RunRecord, name: str, factors: EnergyFactors) -> float | None:
    if run.energy is None:
        return None
    if name in type(run.energy).model_fields:
        return _number(getattr(run.energy, name))
    if run.energy.energy_j_per_output_tok is None:
        return None
    kwh = kwh_per_1m_output_tok(run.energy.energy_j_per_output_tok, factors.pue)
    per_1m = {
        "energy_kwh_per_1m_output_tok": kwh,
        "co2_kg_per_1m_output_tok": co2_kg_per_1m_output_tok(kwh, factors.kg_co2_per_kwh),
        "water_l_per_1m_output_tok": water_l_per_1m_output_tok(kwh, factors.water_l_per_kwh),
    }
    return per_1m.get(name)


def _max_rate_per_s(runs: Sequence[RunRecord], workload: str) -> float | None:
    """The highest rate within the SLO of the workload's runs; None when none held.

    A search says which it is; of rates that were tried, it is the highest that held below the first that did not.
    """
    own = [run for run in runs if run.workload.name == workload]
    found = [
        run.max_rate.rate_per_s
        for run in own
        if run.max_rate is not None and run.max_rate.rate_per_s is not None and run.verdict.status != "invalid"
    ]
    tried = [
        (run.level.rate_per_s, _held(run))
        for run in own
        if isinstance(run.level, OpenLoad | ExternalLoad) and run.level.rate_per_s is not None
    ]
    breaks = min((rate for rate, held in tried if held is False), default=math.inf)
    return max([*found, *(rate for rate, held in tried if held and rate < breaks)], default=None)


def _held(run: RunRecord) -> bool | None:
    """Whether the run's rate held, as the rates page has it; None: it was measured badly, or too few requests tell."""
    codes = {reason.code for reason in run.verdict.reasons}
    if run.verdict.status == "invalid" and not (codes and codes <= BY_THE_ENGINE):
        return None
    return False if OVERLOADED in codes else run.slo_met


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
