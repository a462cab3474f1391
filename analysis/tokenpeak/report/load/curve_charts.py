"""Charts of curves over load: a panel per metric, picked configs in colour, the others pale.

A point's form says everything that its colour says, and its state: filled where the SLO held, hollow where it broke,
crossed out where the engine was overloaded, with a question mark where the run was too short to say.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.charts import haloed

WIDTH, HEIGHT = 400, 210
COLUMNS = 2
"""Panels in a row of the still picture; a script gives a window as many as it has room for."""
TICKS = 8
"""Most loads that an axis names each."""
APART = 5.0
"""Pixels between points of two configs at one load."""
PALE = 40
"""Most configs drawn pale; of more, an even choice."""
STEEP = 8.0
"""From this ratio of the largest value to the smallest on, an axis is logarithmic."""
REACH = 1.6
"""How far beyond the largest value a bar may reach; one that goes on has an arrow."""
CROSS = "M-1,-1L1,1M-1,1L1,-1"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One metric: `frame` as `level_curves.points` has it, the axis's words, and the SLO's limit with its words.

    `marks`: series, kind (highest, saturation) and x, each an upright line of a picked config.
    """

    frame: pl.DataFrame
    words: str
    limit: tuple[float, str] | None = None
    marks: pl.DataFrame | None = None


def curves(panels: Sequence[Panel], names: Sequence[str], roles: Mapping[str, str], x_words: str) -> alt.TopLevelMixin:
    """The panels beside each other; `names` are picked at first, `roles` say what some labels are."""
    key = charts.legend(roles)
    drawn = [_panel(panel, key, x_words) for panel in panels]
    return alt.concat(*drawn, columns=COLUMNS, spacing=28, params=charts.parameters(names))


def _panel(panel: Panel, key: alt.Legend, x_words: str) -> alt.LayerChart | alt.FacetChart:
    frame = _with_bars(panel.frame)
    pale, chosen = charts.split(alt.Chart(frame))
    xs = sorted(frame["x"].unique().to_list())
    x = alt.X("x:Q", title=x_words, scale=alt.Scale(type="log", nice=False, padding=14), axis=_axis(xs))
    step = math.log(xs[-1] / xs[0]) * APART / WIDTH if len(xs) > 1 else 0.02
    # Points of several configs at one load stand beside each other.
    chosen = chosen.transform_calculate(at=f"datum.x * exp((datum.slot - (length(picked) - 1) / 2) * {step:.6g})")
    at = x.copy()
    at.shorthand = "at:Q"
    scale = (
        alt.Scale(type="log", nice=False, padding=6)
        if _is_steep(frame, panel.limit)
        else alt.Scale(zero=True, nice=False, padding=6)
    )
    y = charts.metric_axis(panel.words, scale)
    colour, shape = charts.colour(key), charts.shape(key)
    tip = _tips(frame, panel.words, x_words)
    # What is not picked answers the pointer: a click picks it.
    quiet = pale.transform_filter("datum.pale").encode(x=x, y=y, tooltip=[tip[0]])
    layers: list[alt.Chart | alt.LayerChart] = [
        quiet.mark_line(color=theme.FAINT, cursor="pointer", **charts.joined(len(xs))).encode(detail="series:N"),
        quiet.mark_point(color=theme.FAINT, filled=True, size=14, opacity=1, cursor="pointer"),
    ]
    if frame["holds"].eq(False).any():
        broken = quiet.transform_filter("datum.holds === false")
        layers.append(
            broken.mark_point(color=theme.FAINT, filled=False, fill=theme.PAPER, size=24, opacity=1, cursor="pointer")
        )
    if frame["from"].is_not_null().any():
        bar = chosen.transform_filter("isValid(datum.from)").mark_rule(strokeWidth=1.6, opacity=0.8)
        layers.append(bar.encode(x=at, y=alt.Y("from:Q"), y2=alt.Y2("to:Q"), color=colour))
    if frame["arrow"].is_not_null().any():
        arrow = chosen.transform_filter("isValid(datum.arrow)").mark_text(fontSize=13, fontWeight=700, dy=-9)
        layers.append(arrow.encode(x=at, y=y, text="arrow:N", color=colour))
    line = chosen.mark_line(**charts.joined(len(xs))).encode(x=at, y=y, color=colour)
    held = chosen.transform_filter("datum.holds !== false").mark_point(filled=True, size=60, opacity=1)
    layers += [line, held.encode(x=at, y=y, color=colour, shape=shape, tooltip=tip)]
    if frame["holds"].eq(False).any():
        broke = chosen.transform_filter("datum.holds === false")
        hollow = broke.mark_point(filled=False, size=52, strokeWidth=1.6, fill=theme.PAPER)
        layers.append(hollow.encode(x=at, y=y, color=colour, shape=shape, tooltip=tip))
    if frame["state"].eq("overloaded").any():
        crossed = chosen.transform_filter("datum.state === 'overloaded'")
        layers.append(
            crossed.mark_point(shape=CROSS, size=80, strokeWidth=1.5, opacity=1).encode(x=at, y=y, color=colour)
        )
    if frame["state"].eq("too_short").any():
        short = chosen.transform_filter("datum.state === 'too_short'")
        layers.append(short.mark_text(text="?", fontSize=11, fontWeight=700, dx=-9).encode(x=at, y=y, color=colour))
    if panel.limit is not None:
        layers += slo_line(panel.limit)
    if panel.marks is not None and panel.marks.height:
        layers += _uprights(panel.marks, colour, x)
    return alt.layer(*layers, width=WIDTH, height=HEIGHT)


def _with_bars(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the ends of its bars, `arrow` where one goes on, and `pale`, whether it is drawn unpicked."""
    most = float(frame["value"].max() or 0.0) * REACH  # type: ignore[arg-type]
    names = frame["series"].unique(maintain_order=True)
    kept = names.gather_every(max(1, -(-names.len() // PALE)))
    known = pl.col("low").is_not_null() | pl.col("high").is_not_null()
    short = [pl.col(name).round_sig_figs(6) for name in ("value", "low", "high", "seconds")]
    return frame.with_columns(*short).with_columns(
        pl.when(known).then(pl.coalesce("low", "value")).alias("from"),
        pl.when(known).then(pl.coalesce("high", "value").clip(upper_bound=most)).alias("to"),
        arrow=pl.when(known & (pl.col("high").is_null() | (pl.col("high") > most)))
        .then(pl.lit("↑"))
        .when(known & pl.col("low").is_null())
        .then(pl.lit("↓")),
        pale=pl.col("series").is_in(kept.to_list()),
    )


def _is_steep(frame: pl.DataFrame, limit: tuple[float, str] | None) -> bool:
    """Whether values lie so far apart that a linear axis would hide the small ones."""
    values = [*frame["value"].to_list(), *([limit[0]] if limit else [])]
    return max(values, default=1.0) > STEEP * min(values, default=1.0)


def _axis(xs: Sequence[float]) -> alt.Axis:
    if len(xs) > TICKS:
        return alt.Axis(tickCount=TICKS, grid=False, format="~g", labelOverlap="greedy")
    return alt.Axis(values=list(xs), grid=False, format="~g", labelOverlap="greedy")


def _tips(frame: pl.DataFrame, words: str, x_words: str) -> list[alt.Tooltip]:
    """Tooltip of a point: what is known of any of them."""
    optional = {
        "95% low": "low:Q",
        "95% high": "high:Q",
        "state": "state:N",
        "SLO held": "holds:N",
        "measured for (s)": "seconds:Q",
    }
    known = {title: field for title, field in optional.items() if frame[field[:-2]].is_not_null().any()}
    return charts.tooltips({"config": "series:N", x_words: "x:Q", words: "value:Q", **known, "launches": "n:Q"})


def slo_line(limit: tuple[float, str]) -> list[alt.Chart]:
    """A level line at the limit, with its words at the left."""
    at = pl.DataFrame({"value": [limit[0]], "words": [limit[1]]})
    rule = alt.Chart(at).mark_rule(color=theme.BAD, strokeWidth=1.2).encode(y=alt.Y("value:Q"))
    text = haloed(
        alt.Chart(at).encode(x=alt.value(0), y=alt.Y("value:Q"), text=alt.Text("words:N")),
        align="left",
        baseline="bottom",
        dx=2,
        dy=-3,
        color=theme.BAD,
    )
    return [rule, *text]


def _uprights(marks: pl.DataFrame, colour: alt.Color, x: alt.X) -> list[alt.Chart]:
    """A dotted line at each picked config's highest rate, a dashed one at its saturation."""
    found = []
    for kind, dash in (("highest", [2, 2]), ("saturation", [7, 3])):
        part = marks.filter(pl.col("kind") == kind, pl.col("x").is_not_null())
        if part.height:
            _, chosen = charts.split(alt.Chart(part))
            tip = charts.tooltips({"config": "series:N", f"{kind} (req/s)": "x:Q"})
            found.append(chosen.mark_rule(strokeDash=dash, strokeWidth=1.4).encode(x=x, color=colour, tooltip=tip))
    return found
