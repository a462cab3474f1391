"""Charts of rates: a metric against the offered rate, and what a search for the highest rate found.

A point's form says everything that its colour says, and its state: filled where the SLO held, hollow where it broke,
crossed out where the engine was overloaded, with a question mark where the run was too short to say.
"""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.report import theme
from tokenpeak.report.charts import haloed

WIDTH, HEIGHT = 330, 220
TICKS = 6
"""Most rates that an axis names each, with how long runs at it took."""
APART = 5.0
"""Pixels between points of two configs at one rate."""
CROSS = "M-1,-1L1,1M-1,1L1,-1"


def rate_curves(
    frame: pl.DataFrame,
    ends: pl.DataFrame,
    *,
    names: Sequence[str],
    unit: str,
    limit: tuple[float, str] | None,
    log: bool,
    domain: tuple[float, float],
    marks: pl.DataFrame,
) -> alt.TopLevelMixin:
    """One metric against the offered rate, a line per config; named configs in colour, the rest pale.

    `frame`: rate_per_s, value, low, high (the interval; null: that end is not known), label, named (the label, or
    empty), holds (the SLO held; null when not judged), state, seconds, n. `ends`: rate_per_s, value, named: where each
    named line's label stands; `names` in the order of their colours. `limit` is an SLO's value and its words, `domain`
    the axis's ends. `marks`: named, kind (highest, saturation), rate, low, high, of which each is an upright line.
    """
    names = list(names)
    colour = alt.Color("named:N", scale=alt.Scale(domain=names, range=list(theme.SERIES[: len(names)])), legend=None)
    shape = alt.Shape("named:N", scale=alt.Scale(domain=names, range=list(theme.SHAPES[: len(names)])), legend=None)
    placed = _side_by_side(frame, names)
    x = alt.X(
        "at_per_s:Q",
        title=_x_title(frame),
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=_rate_axis(frame),
    )
    y = alt.Y(
        "value:Q",
        title=unit,
        scale=alt.Scale(type="log" if log else "linear", nice=False, domain=list(domain)),
        axis=alt.Axis(tickCount=5, format=",.4~r"),
    )
    pale = (
        alt.Chart(placed.filter(pl.col("named") == ""))
        .mark_line(color=theme.FAINT, strokeWidth=1.2)
        .encode(x=x, y=y, detail=alt.Detail("label:N"), tooltip=[alt.Tooltip("label:N")])
    )
    chosen = alt.Chart(placed.filter(pl.col("named") != ""))
    line = chosen.mark_line().encode(x=x, y=y, color=colour, detail=alt.Detail("label:N"))
    tip = [
        alt.Tooltip("label:N", title="config"),
        alt.Tooltip("rate_per_s:Q", title="req/s"),
        alt.Tooltip("value:Q", format=",.4~r", title=unit),
        alt.Tooltip("low:Q", format=",.4~r", title="95% low"),
        alt.Tooltip("high:Q", format=",.4~r", title="95% high"),
        alt.Tooltip("state:N", title="state"),
        alt.Tooltip("seconds:Q", format=",.3~r", title="measured (s)"),
        alt.Tooltip("holds:N", title="SLO held"),
    ]
    held = (
        chosen.transform_filter("datum.holds !== false")
        .mark_point(filled=True, size=55, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=tip)
    )
    broke = (
        chosen.transform_filter("datum.holds === false")
        .mark_point(filled=False, size=45, strokeWidth=1.5, fill=theme.PAPER)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=tip)
    )
    overloaded = (
        chosen.transform_filter("datum.state === 'overloaded'")
        .mark_point(shape=CROSS, size=75, strokeWidth=1.5, opacity=1)
        .encode(x=x, y=y, color=colour)
    )
    short = (
        chosen.transform_filter("datum.state === 'too_short'")
        .mark_text(text="?", fontSize=11, fontWeight=700, dx=-9)
        .encode(x=x, y=y, color=colour)
    )
    layers: list[alt.Chart] = [pale, *_intervals(placed, domain, x, y, colour), line, held, broke, overloaded, short]
    if limit:
        layers += _slo_line(limit)
    layers += _upright(marks, names, colour)
    named = alt.Chart(ends).encode(x=alt.X("rate_per_s:Q"), y=y, text=alt.Text("named:N"), color=colour)
    layers += haloed(named, align="left", dx=9)
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)


def _side_by_side(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The frame with `at_per_s`, where a point stands: configs at one rate beside each other."""
    rates: list[float] = frame["rate_per_s"].to_list()
    span = math.log(max(rates) / min(rates)) if rates else 0.0
    order = {name: place - (len(names) - 1) / 2 for place, name in enumerate(names)}
    shared = frame.filter(pl.col("named") != "")["rate_per_s"].is_duplicated().any()
    step = span * APART / WIDTH if shared else 0.0
    aside = pl.col("named").replace_strict(order, default=0.0, return_dtype=pl.Float64)
    return frame.with_columns(at_per_s=pl.col("rate_per_s") * (aside * step).exp())


def _rate_axis(frame: pl.DataFrame) -> alt.Axis:
    """Each rate tried, above the seconds for which a run at it was measured; even steps where they are many."""
    each = frame.group_by("rate_per_s").agg(pl.col("seconds").truediv("n").median()).sort("rate_per_s")
    if each.height > TICKS:
        return alt.Axis(tickCount=TICKS, grid=False, format="~g", labelOverlap="greedy")
    rows: list[tuple[float, float | None]] = each.rows()
    lengths = " : ".join(f"datum.value === {rate!r} ? '{length:.3g} s'" for rate, length in rows if length is not None)
    words = f"[format(datum.value, '~g'), {lengths} : '']" if lengths else "format(datum.value, '~g')"
    return alt.Axis(values=each["rate_per_s"].to_list(), grid=False, labelExpr=words)


def _x_title(frame: pl.DataFrame) -> str:
    few = frame["rate_per_s"].n_unique() <= TICKS and frame["seconds"].is_not_null().any()
    return "offered rate (req/s), measured for (s)" if few else "offered rate (req/s)"


def _intervals(
    placed: pl.DataFrame, domain: tuple[float, float], x: alt.X, y: alt.Y, colour: alt.Color
) -> list[alt.Chart]:
    """An upright bar for each interval; one without an end there goes no further than its point, with an arrow."""
    known = placed.filter(pl.col("named") != "", pl.col("low").is_not_null() | pl.col("high").is_not_null())
    if known.is_empty():
        return []
    drawn = known.select(
        "at_per_s",
        "named",
        "value",
        pl.coalesce("low", "value").clip(*domain).alias("from"),
        pl.coalesce("high", "value").clip(*domain).alias("to"),
        arrow=pl.when(pl.col("high").is_null()).then(pl.lit("↑")).when(pl.col("low").is_null()).then(pl.lit("↓")),
    )
    bar = alt.Chart(drawn).mark_rule(strokeWidth=1.6, opacity=0.8)
    arrow = alt.Chart(drawn.filter(pl.col("arrow").is_not_null())).mark_text(fontSize=13, fontWeight=700, dy=-9)
    return [
        bar.encode(x=x, y=alt.Y("from:Q"), y2=alt.Y2("to:Q"), color=colour),
        arrow.encode(x=x, y=y, text=alt.Text("arrow:N"), color=colour),
    ]


def _slo_line(limit: tuple[float, str]) -> list[alt.Chart]:
    at = pl.DataFrame({"value": [limit[0]], "words": [limit[1]]})
    rule = alt.Chart(at).mark_rule(color=theme.BAD, strokeWidth=1.2).encode(y=alt.Y("value:Q"))
    text = alt.Chart(at).mark_text(align="left", baseline="bottom", dx=2, dy=-3, color=theme.BAD, fontSize=11)
    return [rule, text.encode(x=alt.value(0), y=alt.Y("value:Q"), text=alt.Text("words:N"))]


def _upright(marks: pl.DataFrame, names: Sequence[str], colour: alt.Color) -> list[alt.Chart]:
    """A dotted line at each highest rate, a dashed one at each saturation, and across it its interval as a bar.

    The bars of the highest rates lie at the plot's foot, those of saturation at its head.
    """
    layers = []
    for kind, dash in (("highest", [2, 2]), ("saturation", [7, 3])):
        part = marks.filter(pl.col("kind") == kind, pl.col("rate").is_not_null())
        if part.is_empty():
            continue
        x, tip = alt.X("rate:Q"), [alt.Tooltip(name) for name in ("named:N", "kind:N", "rate:Q", "low:Q", "high:Q")]
        rule = alt.Chart(part).mark_rule(strokeDash=dash, strokeWidth=1.4)
        layers.append(rule.encode(x=x, color=colour, tooltip=tip))
        for place, name in enumerate(names):
            own = part.filter(pl.col("named") == name, pl.col("low").is_not_null(), pl.col("high").is_not_null())
            at = HEIGHT - 5 - 5 * place if kind == "highest" else 5 + 5 * place
            if own.height:
                bar = alt.Chart(own).mark_rule(strokeWidth=4, opacity=0.75)
                layers.append(bar.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=alt.value(at), color=colour))
    return layers


def searched_rates(frame: pl.DataFrame, confidence: str) -> alt.TopLevelMixin:
    """What each search found: the highest rate as a dot and the saturated throughput as a stroke, with intervals.

    `frame`: row (unique), rate, low, high, saturation, saturation_low, saturation_high (null: not known), words and
    saturation_words (beside them), in the order shown.
    """
    order = frame["row"].to_list()
    base = alt.Chart(frame).encode(
        y=alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=200, labelColor=theme.INK, grid=True))
    )
    ends = [end for name in ("rate", "high", "saturation", "saturation_high") for end in frame[name].drop_nulls()]
    # Room on the right for the words beside the last of them.
    scale = alt.Scale(domain=[0, 1.75 * max(ends, default=1.0)], nice=False)
    axis = alt.Axis(orient="top", tickCount=6, format=",~f")
    title = f"req/s, {confidence} interval" if confidence else "req/s"
    layers: list[alt.Chart] = []
    for name, low, high, words, form, aside in (
        ("rate", "low", "high", "words", "circle", -9),
        ("saturation", "saturation_low", "saturation_high", "saturation_words", "stroke-upright", 9),
    ):
        ink = theme.ACCENT if name == "rate" else theme.QUIET
        whole = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        known = base.transform_filter(f"isValid(datum.{name})")
        mark: dict[str, Any] = {"color": ink, "yOffset": aside, "opacity": 1}
        layers.append(
            whole.mark_rule(strokeWidth=2, **mark).encode(
                x=alt.X(f"{low}:Q", title=title, scale=scale, axis=axis), x2=alt.X2(f"{high}:Q")
            )
        )
        at = alt.X(f"{name}:Q", title=title, scale=scale, axis=axis)
        point: dict[str, Any] = {"shape": "circle", "filled": True, "size": 80}
        if form != "circle":
            point = {"shape": "M0,-1L0,1", "size": 150, "strokeWidth": 2.5}
        layers.append(known.mark_point(**point, **mark).encode(x=at))
        beside = base.transform_calculate(
            beside=f"isValid(datum.{high}) ? datum.{high} : isValid(datum.{name}) ? datum.{name} : 0"
        )
        layers.append(
            beside.mark_text(align="left", dx=10, dy=aside, fontSize=11, color=theme.QUIET).encode(
                x=alt.X("beside:Q", title=title, scale=scale, axis=axis), text=alt.Text(f"{words}:N")
            )
        )
    return alt.layer(*layers).properties(width=430, height=alt.Step(44))
