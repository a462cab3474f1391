"""Figures of curves over load: throughput, TTFT and TPOT of each config at rising rates or numbers of users."""

from collections.abc import Mapping, Sequence

import polars as pl

from tokenpeak.report import curve_charts, level_curves, rates
from tokenpeak.report.blocks import Column, Figure, Sentence, Table, note, table
from tokenpeak.report.charts import spec_of
from tokenpeak.report.figures import slug
from tokenpeak.report.level_curves import AXES, Load, Measure
from tokenpeak.report.picks import MOST
from tokenpeak.report.view import SweepView

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
        for measure in level_curves.measures(view)
        if (frame := level_curves.points(runs, measure)).height and frame["x"].n_unique() > 1
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
    return Figure(
        name=name,
        title=title,
        caption=_caption(
            view,
            [frame for _, frame in found],
            len(series) - len(shown),
            marks,
            has_unjudged=not runs["judged"].all(ignore_nulls=False),
        ),
        spec=spec_of(curve_charts.curves(panels, shown, roles, x_words)),
        data=_data(found, load, title),
        scope=scope,
    )


def no_curve() -> Sentence:
    """What stands where no config has two loads."""
    return note("No config has runs to rank at more than one load level, so there is no curve.")


def searched_marks(found: pl.DataFrame) -> pl.DataFrame:
    """The highest rate and the saturation of each config as `curve_charts.Panel` draws them, of its first launch."""
    if found.is_empty():
        return pl.DataFrame(schema=MARKS)
    first = found.sort("replicate", maintain_order=True).unique("label", keep="first", maintain_order=True)
    return pl.concat(
        first.select(series="label", kind=pl.lit(kind), x=column).cast(MARKS)
        for kind, column in (("highest", "rate"), ("saturation", "saturation"))
    )


def _data(found: Sequence[tuple[Measure, pl.DataFrame]], load: Load, title: str) -> Table:
    words = AXES[load]
    unit = "req/s" if load == "rate" else ""
    frame = pl.concat(
        [own.with_columns(metric=pl.lit(measure.title), unit=pl.lit(measure.unit)) for measure, own in found],
        how="vertical_relaxed",
    )
    shown = frame.with_columns(pl.col("state").str.replace_all("_", " "), holds=pl.col("holds").cast(pl.String))
    optional = [
        Column(key="low", title="95% low", kind="number"),
        Column(key="high", title="95% high", kind="number"),
        Column(key="state", title="State"),
        Column(key="seconds", title="Measured for", unit="s", kind="number"),
        Column(key="holds", title="SLO held"),
    ]
    return table(
        shown,
        [
            Column(key="series", title="Config", kind="code"),
            Column(key="metric", title="Metric"),
            Column(key="unit", title="Unit"),
            Column(key="x", title=words.removesuffix(" (req/s)").capitalize(), unit=unit, kind="number"),
            Column(key="value", title="Value", kind="number"),
            *(each for each in optional if shown[each.key].is_not_null().any()),
            Column(key="n", title="Launches", kind="number"),
        ],
        name="data",
        title=f"Data of the figure: {title}",
    )


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
    """What the signs of states mean, as far as they occur, and how long points were measured."""
    states, seconds = set(points["state"].to_list()), (points["seconds"] / points["n"]).drop_nulls()
    words = []
    if "overloaded" in states:
        words.append("Crossed: overloaded, the queue grew.")
    if "too_short" in states:
        words.append("?: too short a run to say whether the engine kept up.")
    if seconds.len():
        least, most = float(seconds.min()), float(seconds.max())  # type: ignore[arg-type]
        words.append(f"Each point was measured for {least:.3g} to {most:.3g} s.")
    return words


def of_workload(view: SweepView, hardware: str, workload: str, load: Load, roles: Mapping[str, str]) -> Figure | None:
    """The curves of a workload under one kind of load on one kind of hardware; the configs with `roles` picked."""
    runs = level_curves.loaded_runs(view, hardware, workload, load)
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
