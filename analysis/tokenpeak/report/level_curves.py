"""Curves over load: a metric of each config at rising request rates or numbers of users, with intervals.

Launches of a config at one load level are averaged geometrically, as in the ranking. A percentile of one launch has the
interval of its own requests; means of several have the launches' spread, pooled over the configs at that level.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from tokenpeak.ranking.intervals import t_critical
from tokenpeak.ranking.ties import WIDEST
from tokenpeak.report import rates
from tokenpeak.report.view import SweepView, metric_word

Load = Literal["rate", "users"]
"""What rises: the offered request rate, or the number of requests in flight."""
AXES = {"rate": "offered rate (req/s)", "users": "requests in flight"}
"""What rises, in words."""
STATES = ("overloaded", "too_short", "steady")
"""The states of a point of several launches: the first of these that one launch was in."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A metric to draw: its column, the factor to the unit shown, and the SLO's limit in that unit."""

    column: str
    title: str
    unit: str
    scale: float = 1.0
    limit: float | None = None


def measures(view: SweepView) -> tuple[Measure, ...]:
    """Throughput, TTFT p50, then TTFT and TPOT at the SLO's percentiles, at p99 and p95 where it names none.

    Without an SLO, a search's own limits stand for it.
    """
    slo = view.spec.slo if view.slo_words else rates.searched_limits(view) or view.spec.slo
    limits = {name: (percentile, limit * 1000) for name, percentile, limit in slo.limits()}
    found = [
        Measure(column="output_tok_per_s", title="Output throughput", unit="tok/s"),
        Measure(column="ttft_s_p50", title="TTFT p50", unit="ms", scale=1000.0),
    ]
    for metric, usual in (("ttft_s", "p99"), ("tpot_s", "p95")):
        percentile, limit = limits.get(metric, (usual, None))
        measure = Measure(
            column=f"{metric}_{percentile}",
            title=f"{metric_word(metric)} {percentile}",
            unit="ms",
            scale=1000.0,
            limit=limit,
        )
        found = [each for each in found if each.column != measure.column] + [measure]
    return tuple(found)


def loaded_runs(view: SweepView, hardware: str, workload: str, load: Load) -> pl.DataFrame:
    """The runs of a workload under one kind of load, with x, `held`, `judged` and `state` as rates have them."""
    if load == "rate":
        return rates.open_runs(view, hardware, workload).with_columns(x=pl.col("rate_per_s").cast(pl.Float64))
    runs = view.same_requests().filter(
        pl.col("hardware") == hardware,
        pl.col("workload_name") == workload,
        pl.col("rate_per_s").is_null(),
        pl.col("max_rate_ended").is_null(),
        pl.col("concurrency") > 0,
    )
    return runs.with_columns(
        x=pl.col("concurrency").cast(pl.Float64),
        held=pl.col("slo_met"),
        judged=pl.col("verdict") != "invalid",
        state=pl.lit(None, dtype=pl.String),
    )


def points(runs: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """A row per config and load: series (the label), x, value, low, high, holds, state, seconds, n.

    `holds`: the SLO held in each launch, of one without the metric too; null where one cannot say. Runs that may not be
    ranked are left out.
    `seconds`: how long it was measured, in all launches.
    """
    if measure.column not in runs.columns:
        return pl.DataFrame()
    ends = [_interval(text, measure.column) for text in runs["percentile_intervals"].to_list()]
    worst = pl.col("state").replace_strict(STATES, range(len(STATES)), default=len(STATES))
    log = pl.col(measure.column).log()
    found = (
        runs.with_columns(
            low=pl.Series([low for low, _ in ends], dtype=pl.Float64),
            high=pl.Series([high for _, high in ends], dtype=pl.Float64),
        )
        .filter("judged")
        .with_columns(holds=pl.col("held").all(ignore_nulls=False).over("label", "x"))
        .filter(pl.col(measure.column) > 0)
        .group_by(pl.col("label").alias("series"), "x", maintain_order=True)
        .agg(
            value=log.mean().exp() * measure.scale,
            squares=((log - log.mean()) ** 2).sum(),
            low=pl.when(pl.len() == 1).then(pl.col("low").first()) * measure.scale,
            high=pl.when(pl.len() == 1).then(pl.col("high").first()) * measure.scale,
            holds=pl.col("holds").first(),
            state=pl.col("state").sort_by(worst).first(),
            seconds=pl.col("duration_s").sum(),
            n=pl.len(),
        )
    )
    halves = {x: _half(float(own["squares"].sum()), own["n"].to_list()) for (x,), own in found.group_by("x")}
    half = pl.col("x").replace_strict(halves, default=None, return_dtype=pl.Float64) / pl.col("n").sqrt()
    return (
        found.with_columns(
            low=pl.when(pl.col("n") > 1).then(pl.col("value") * (-half).exp()).otherwise("low"),
            high=pl.when(pl.col("n") > 1).then(pl.col("value") * half.exp()).otherwise("high"),
        )
        .drop("squares")
        .sort("series", "x")
    )


def _half(squares: float, launches: Sequence[int]) -> float | None:
    """Half the 95% interval of one launch's logarithm; None where launches are too few or differ too much."""
    freedom = sum(launches) - len(launches)
    half = t_critical(freedom) * math.sqrt(squares / freedom) if freedom else math.inf
    return half if half <= WIDEST else None


def _interval(text: str | None, column: str) -> tuple[float | None, float | None]:
    """Both ends of the interval of a percentile, of a run's `percentile_intervals`; None: not known."""
    low, high = json.loads(text or "{}").get(column, (None, None))
    return low, high


def loads(view: SweepView, workload: str) -> list[Load]:
    """Under which kinds of load the workload has a curve: more than one level, or a search for the highest rate."""
    own = view.runs.filter(pl.col("workload_name") == workload)
    found: list[Load] = []
    if workload in rates.rated_workloads(view):
        found.append("rate")
    users = own.filter(pl.col("rate_per_s").is_null(), pl.col("max_rate_ended").is_null())["concurrency"]
    if users.drop_nulls().n_unique() > 1:
        found.append("users")
    return found
