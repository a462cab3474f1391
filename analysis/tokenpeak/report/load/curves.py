"""Curves over load: a metric of each config at rising request rates or numbers of users, with intervals.

Launches of a config at one load level are averaged geometrically, as in the ranking. A percentile of one launch has the
interval of its own requests; means of several have the launches' spread, pooled over the configs at that level.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from tokenpeak.metrics import title_of
from tokenpeak.paths import slug
from tokenpeak.ranking.candidates import throughput_column
from tokenpeak.ranking.intervals import t_critical
from tokenpeak.ranking.ties import WIDEST
from tokenpeak.report.blocks.block import Figure, Sentence, note
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.charts import BETWEEN, MOST
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.load import curve_charts, rates
from tokenpeak.report.view import SweepView, latency_words, metric_word

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
    if view.spec.pools:
        return _of_pooling(view, limits)
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


def _of_pooling(view: SweepView, limits: dict[str, tuple[str, float]]) -> tuple[Measure, ...]:
    """Throughput and latency of a pooling model, which has no tokens to wait for."""
    speed = throughput_column(view.spec)
    latencies = (
        Measure(
            column=column,
            title=latency_words(column),
            unit="ms",
            scale=1000.0,
            limit=limit if column == f"latency_s_{percentile}" else None,
        )
        for percentile, limit in [limits.get("latency_s", ("", None))]
        for column in reversed(view.latency_columns)
    )
    return (Measure(column=speed, title=title_of(speed), unit="tok/s"), *latencies)


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


MARKS = pl.Schema({"series": pl.String, "kind": pl.String, "x": pl.Float64})


def curves(
    view: SweepView,
    runs: pl.DataFrame,
    load: Load,
    names: Sequence[str],
    roles: Mapping[str, str],
    *,
    name: str,
    title: str,
    scope: str,
    marks: pl.DataFrame | None = None,
) -> Figure | None:
    """The metrics of these runs over their load, `names` picked first; None where no config has two points.

    `runs` as `level_curves.loaded_runs` has them. `marks` as `searched_marks` has them.
    """
    found = [
        (measure, frame)
        for measure in measures(view)
        if (frame := points(runs, measure)).height and frame["x"].n_unique() > 1
    ]
    if not found:
        return None
    series = [*dict.fromkeys(label for _, frame in found for label in frame["series"])]
    picked = [*(each for each in names if each in series), *(each for each in series if each not in names)]
    shown = picked[: max(1, sum(each in series for each in names))][:MOST]
    x_words = AXES[load]
    panels = [
        curve_charts.Panel(
            frame=frame,
            words=f"{measure.title} ({measure.unit})",
            limit=(measure.limit, f"SLO {measure.limit:g} ms") if measure.limit is not None else None,
            marks=marks,
        )
        for measure, frame in found
    ]
    data = _data(found)
    return figure(
        curve_charts.curves(panels, shown, roles, x_words),
        data,
        _titles(data, load),
        name=name,
        title=title,
        caption=_caption(
            view,
            [frame for _, frame in found],
            len(series) - len(shown),
            marks,
            has_unjudged=not runs["judged"].all(ignore_nulls=False),
        ),
        scope=scope,
    )


def no_curve() -> Sentence:
    """Note in the place of a curve where no config has two loads."""
    return note(
        "No config has runs to rank at more than one rate, or number of requests in flight, so there is no curve."
    )


def searched_marks(found: pl.DataFrame) -> pl.DataFrame:
    """The highest rate and the saturation of each config as `curve_charts.Panel` draws them, of its lowest launch."""
    if found.is_empty():
        return pl.DataFrame(schema=MARKS)
    return pl.concat(
        rates.lowest_launches(found).select(series="label", kind=pl.lit(kind), x=column).cast(MARKS)
        for kind, column in (("highest", "rate"), ("saturation", "saturation"))
    )


def _data(found: Sequence[tuple[Measure, pl.DataFrame]]) -> pl.DataFrame:
    """The points of all metrics, a row each, with their metric and its unit."""
    metrics = [own.with_columns(metric=pl.lit(each.title), unit=pl.lit(each.unit)) for each, own in found]
    return pl.concat(metrics, how="vertical_relaxed").with_columns(
        pl.col("state").str.replace_all("_", " "), holds=pl.col("holds").cast(pl.String)
    )


def _titles(data: pl.DataFrame, load: Load) -> dict[str, str]:
    optional = {
        "low": "95% low",
        "high": "95% high",
        "state": "State",
        "seconds": "Measured for (s)",
        "holds": "SLO held",
    }
    known = {key: title for key, title in optional.items() if data[key].is_not_null().any()}
    metric = {"series": "`Config`", "metric": "Metric", "unit": "Unit"}
    return {**metric, "x": AXES[load].capitalize(), "value": "Value", **known, "n": "Launches"}


def _caption(
    view: SweepView, frames: Sequence[pl.DataFrame], pale: int, marks: pl.DataFrame | None, *, has_unjudged: bool
) -> str:
    points = pl.concat([frame.select("low", "high", "holds", "state", "seconds", "n") for frame in frames])
    most = max(points["n"].to_list())
    words = [
        f"{view.lone_words('One launch each').capitalize()}."
        if most == 1
        else f"Geometric means of up to {most} launches."
    ]
    if pale:
        words.append(f"{pale} other config{' is' if pale == 1 else 's are'} pale.")
    if all(frame["x"].n_unique() == 2 for frame in frames):
        words.append(BETWEEN)
    if has_unjudged:
        words.append("Runs that could not be judged are not drawn.")
    if points["low"].is_not_null().any() or points["high"].is_not_null().any():
        beyond = points.select(pl.col("low").is_null() != pl.col("high").is_null()).to_series().any()
        words.append(f"Bars are 95% intervals{' (an arrow: that end is open)' if beyond else ''}.")
    if points["holds"].eq(False).any():
        words.append(f"Hollow points broke {'the SLO' if view.slo_words else 'the limits'}.")
    words += _state_words(points)
    if marks is not None and marks.filter(pl.col("x").is_not_null()).height:
        words.append("Dotted: the highest rate within the SLO. Dashed: the saturated throughput.")
    return " ".join(words)


def _state_words(points: pl.DataFrame) -> list[str]:
    """Meaning of the signs of states, as far as they occur, and how long points were measured."""
    states, seconds = set(points["state"].to_list()), points["seconds"] / points["n"]
    seconds = seconds.filter(seconds > 0)
    words = []
    if "overloaded" in states:
        words.append("Crossed: overloaded, the queue grew.")
    if "too_short" in states:
        words.append("?: too short a run to say whether the engine kept up.")
    if seconds.len():
        least, most = float(seconds.min()), float(seconds.max())  # type: ignore[arg-type]
        digits = 0 if least >= 10 else 1
        words.append(f"Each point was measured for {number(least, digits)} to {number(most, digits)} s.")
    return words


def of_workload(view: SweepView, hardware: str, workload: str, load: Load, roles: Mapping[str, str]) -> Figure | None:
    """The curves of a workload under one kind of load on one kind of hardware; the configs with `roles` picked."""
    runs = loaded_runs(view, hardware, workload, load)
    marks = searched_marks(rates.found_rates(view, hardware, workload)) if load == "rate" else None
    rising = "At rising request rates" if load == "rate" else "With more requests in flight"
    several = f", {workload}" if len(view.spec.workloads) > 1 else ""
    return curves(
        view,
        runs,
        load,
        list(roles),
        roles,
        name=f"curves-{slug(hardware)}-{slug(workload)}-{load}",
        title=f"{rising}{several}{view.where(hardware)}",
        scope=slug(hardware),
        marks=marks,
    )
