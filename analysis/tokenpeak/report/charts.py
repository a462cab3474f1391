"""Charts: pure functions from a frame to an Altair chart, in the site's theme.

Every chart takes frames whose columns are named in its docstring and returns a chart without title or caption; those
belong to the figure around it.
"""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.report import theme
from tokenpeak.report.blocks import shared_digits

CHARTED = 40
"""Most configs that a chart of dots shows; its table has all."""


def spec_of(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as Vega-Lite JSON with the theme, its data inside; tests validate it, a build need not."""
    found: dict[str, Any] = chart.to_dict(validate=False)
    found["config"] = theme.CONFIG
    return found


def dots(
    frame: pl.DataFrame,
    *,
    title: str,
    reference: tuple[float, str] | None = None,
    tooltips: Sequence[str] = ("value:Q", "low:Q", "high:Q", "n:Q"),
    zero: bool = False,
) -> alt.TopLevelMixin:
    """Configs on one axis, best first, with their intervals, the winner's group in a band.

    `frame`: label (unique), value (null: no result), low, high (null: a single launch), group (best, tie or empty),
    marked (the one to look at, a diamond), remark (shown where there is no value), in the order shown. `reference` is
    a value and its name.
    """
    digits = f",.{shared_digits(frame['value'])}f"
    shown = frame.head(CHARTED).with_columns(order=pl.int_range(pl.len()))
    y = alt.Y(
        "label:N",
        sort=alt.EncodingSortField("order"),
        title=None,
        axis=alt.Axis(labelLimit=420, labelColor=theme.INK, grid=True),
    )
    x_scale = alt.Scale(zero=True, nice=True) if zero else alt.Scale(zero=False, nice=True, padding=28)
    ticks = digits.replace("f", "~f") if zero else digits
    axis = alt.Axis(format=ticks, orient="top", tickCount=6, labelOverlap="greedy", labelSeparation=6)
    base = alt.Chart(shown).encode(y=y)
    layers: list[alt.Chart | alt.LayerChart] = []
    group = shown.filter(pl.col("group").is_in(["best", "tie"]))
    if group.height > 1:
        edges = group.select(
            pl.coalesce("low", "value").min().alias("from"), pl.coalesce("high", "value").max().alias("to")
        )
        layers.append(alt.Chart(edges).mark_rect(color=theme.BAND).encode(x=alt.X("from:Q"), x2=alt.X2("to:Q")))
    if reference:
        mark = pl.DataFrame({"value": [reference[0]], "name": [reference[1]]})
        rule = alt.Chart(mark).mark_rule(color=theme.QUIET, strokeDash=[4, 3]).encode(x=alt.X("value:Q"))
        name = (
            alt.Chart(mark)
            .mark_text(color=theme.QUIET, align="center", baseline="bottom", dy=12, fontSize=11)
            .encode(x=alt.X("value:Q"), y=alt.value("height"), text=alt.Text("name:N"))
        )
        layers += [rule, name]
    if shown["low"].is_not_null().any():
        layers.append(
            base.transform_filter("isValid(datum.low)")
            .mark_rule(strokeWidth=2, color=theme.QUIET)
            .encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
        )
    fill = alt.Color(
        "group:N",
        scale=alt.Scale(domain=["best", "tie", ""], range=[theme.ACCENT, theme.ACCENT, theme.QUIET]),
        legend=None,
    )
    shape = alt.Shape("marked:N", scale=alt.Scale(domain=[True, False], range=["diamond", "circle"]), legend=None)
    point = (
        base.transform_filter("isValid(datum.value)")
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x=alt.X("value:Q", title=title, scale=x_scale, axis=axis),
            color=fill,
            shape=shape,
            tooltip=[alt.Tooltip(f"{name}") for name in ("label", *tooltips)],
        )
    )
    text = (
        base.transform_filter("isValid(datum.value)")
        .mark_text(align="left", dx=10, fontSize=11, color=theme.QUIET)
        .encode(x=alt.X("anchor:Q"), text=alt.Text("value:Q", format=digits))
        .transform_calculate(anchor="isValid(datum.high) ? datum.high : datum.value")
    )
    layers += [point, text]
    if shown["value"].is_null().any():
        layers.append(
            base.transform_filter("!isValid(datum.value)")
            .mark_text(align="left", color=theme.BAD, fontSize=11, fontStyle="italic")
            .encode(x=alt.value(6), text=alt.Text("remark:N"))
        )
    return alt.layer(*layers).properties(width=theme.WIDTH, height=alt.Step(24))


def heatmap(
    frame: pl.DataFrame, *, across: str, down: str, across_order: Sequence[str], down_order: Sequence[str]
) -> alt.TopLevelMixin:
    """Cells of two axes, coloured by the difference from the baseline, for each kind of hardware.

    `frame`: hardware, across, down, state (value, untried, failed), step (0..8, the diverging step), words (in the
    cell), under (two lines below), and tooltip columns value, gain, n, why.
    """
    columns, rows = max(1, len(across_order)), max(1, len(down_order))
    texts = [*frame["words"].to_list(), *(line for under in frame["under"].to_list() for line in under.split("\n"))]
    cell = max(62, min(120, 300 // columns), math.ceil(6.2 * max(map(len, texts), default=0)) + 8)
    x = alt.X(
        "across:N",
        sort=list(across_order),
        title=across,
        axis=alt.Axis(orient="bottom", labelAngle=0, labelLimit=cell, domain=False, ticks=False),
    )
    y = alt.Y("down:N", sort=list(down_order), title=down)
    base = alt.Chart(frame).encode(x=x, y=y)
    steps = [str(index) for index in range(9)]
    tip = [alt.Tooltip(name) for name in ("across:N", "down:N", "value:Q", "gain:Q", "n:Q", "why:N")]
    filled = (
        base.transform_filter("datum.state === 'value'")
        .mark_rect(stroke=theme.PAPER, strokeWidth=3, cornerRadius=4)
        .encode(
            color=alt.Color("step:N", scale=alt.Scale(domain=steps, range=list(theme.DIVERGING)), legend=None),
            tooltip=tip,
        )
    )
    hatched = (
        base.transform_filter("datum.state === 'untried'")
        .mark_rect(fill="url(#hatch)", stroke=theme.PAPER, strokeWidth=3, cornerRadius=4)
        .encode(tooltip=tip)
    )
    failed = (
        base.transform_filter("datum.state === 'failed'")
        .mark_rect(fill="none", stroke=theme.BAD, strokeWidth=1, cornerRadius=4)
        .encode(tooltip=tip)
    )
    ink = alt.Color("step:N", scale=alt.Scale(domain=steps, range=list(theme.DIVERGING_INK)), legend=None)
    words = (
        base.transform_filter("datum.state === 'value'")
        .mark_text(fontSize=13, fontWeight=600, dy=-13)
        .encode(text=alt.Text("words:N"), color=ink)
    )
    under = (
        base.transform_filter("datum.state === 'value'")
        .mark_text(fontSize=11, dy=3, lineBreak="\n", lineHeight=13)
        .encode(text=alt.Text("under:N"), color=ink)
    )
    other = (
        base.transform_filter("datum.state !== 'value'")
        .mark_text(fontSize=11, color=theme.QUIET)
        .encode(text=alt.Text("words:N"))
    )
    # Fill and ink are two colour scales over one field: layers must not share them.
    layered = alt.layer(filled, hatched, failed, alt.layer(words, under), other).resolve_scale(color="independent")
    # The rows are at least as high as the name of their axis beside them is long.
    step = max(52, math.ceil(7.5 * len(down) / rows))
    return _by_hardware(layered, frame, width=cell * columns, step=step, room=HEATMAP_ROOM)


def effects(frame: pl.DataFrame, *, title: str) -> alt.TopLevelMixin:
    """What each alternative does by itself: a dot and interval per alternative, for each hardware.

    `frame`: hardware, choice (axis = alternative), axis, alternative, effect, low, high (shares; null where there is
    no interval), n; in the order shown.
    """
    order = frame["choice"].unique(maintain_order=True).to_list()
    base = alt.Chart().encode(
        y=alt.Y("choice:N", title=None, sort=order, axis=alt.Axis(labelColor=theme.INK, labelLimit=260, grid=True))
    )
    # d3 has no format that signs every number but zero.
    sign = "(datum.value > 0 ? '+' : '') + format(datum.value, '.0%')"
    x = alt.X(
        "effect:Q",
        title=title,
        axis=alt.Axis(labelExpr=sign, tickCount=5, labelOverlap="greedy", labelSeparation=6),
        scale=alt.Scale(padding=16),
    )
    zero = alt.Chart().mark_rule(color=theme.QUIET, strokeDash=[4, 3]).encode(x=alt.XDatum(0))
    bar = base.mark_rule(strokeWidth=2, color=theme.QUIET).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    dot = base.mark_point(filled=True, size=80, color=theme.ACCENT, opacity=1).encode(
        x=x,
        tooltip=[
            alt.Tooltip("axis:N"),
            alt.Tooltip("alternative:N"),
            alt.Tooltip("effect:Q", format="+.1%"),
            alt.Tooltip("n:Q"),
        ],
    )
    layers = [zero, bar, dot] if frame["low"].is_not_null().any() else [zero, dot]
    layered = alt.layer(*layers, data=frame)
    return _by_hardware(layered, frame, width=330, step=24, room=EFFECTS_ROOM)


HEATMAP_ROOM, EFFECTS_ROOM = 1040, 700
"""What the plots of one row may take, beside the labels on their left, where the window is wide."""


def _by_hardware(
    chart: alt.LayerChart | alt.FacetChart, frame: pl.DataFrame, *, width: int, step: int, room: int
) -> alt.TopLevelMixin:
    """The chart for each kind of hardware, in rows of as many as there is room for; a narrow window gets fewer."""
    kinds = frame["hardware"].unique(maintain_order=True).to_list()
    each = alt.Facet("hardware:N", title=None, sort=kinds, header=alt.Header(labelLimit=width + 60))
    row = min(len(kinds), max(1, room // (width + 20)))
    faceted: alt.FacetChart = chart.properties(width=width, height=alt.Step(step)).facet(each, columns=row)
    resolved: alt.FacetChart = faceted.resolve_axis(x="independent")
    return resolved


def haloed(base: alt.Chart, **mark: Any) -> list[alt.Chart]:
    """Labels at points, and below them the same in the paper's colour and bolder: what lies behind stays apart."""
    halo = base.mark_text(fontSize=11, stroke=theme.PAPER, strokeWidth=4, **mark)
    return [halo, base.mark_text(fontSize=11, **mark)]


def tradeoff(frame: pl.DataFrame, *, x_title: str, y_title: str) -> alt.TopLevelMixin:
    """Two metrics against each other: the front drawn through the points that nothing beats, the others pale.

    `frame`: x, y, label, level, front (on it or not), "taken" (the recommended config, a diamond), named (text at the
    point, or empty).
    """
    x = alt.X(
        "x:Q", title=x_title, scale=alt.Scale(zero=False, nice=True, padding=20), axis=alt.Axis(grid=True, tickCount=6)
    )
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False, nice=True, padding=20), axis=alt.Axis(tickCount=6))
    tip = [
        alt.Tooltip("label:N", title="config"),
        alt.Tooltip("level:N", title="load"),
        alt.Tooltip("x:Q", format=",.4~r", title=x_title),
        alt.Tooltip("y:Q", format=",.4~r", title=y_title),
    ]
    pale = (
        alt.Chart(frame.filter(~pl.col("front"), ~pl.col("taken")))
        .mark_point(filled=True, color=theme.FAINT, size=45, opacity=1)
        .encode(x=x, y=y, tooltip=tip)
    )
    front = alt.Chart(frame.filter(pl.col("front")).sort("x"))
    line = front.mark_line(color=theme.ACCENT, interpolate="step-before", strokeWidth=1.5).encode(x=x, y=y)
    shown = alt.Chart(frame.filter(pl.col("front") | pl.col("taken")))
    point = (
        shown.transform_filter("!datum.taken")
        .mark_point(filled=True, color=theme.ACCENT, size=60, opacity=1)
        .encode(x=x, y=y, tooltip=tip)
    )
    diamond = (
        shown.transform_filter("datum.taken")
        .mark_point(filled=True, color=theme.INK, size=110, shape="diamond", opacity=1)
        .encode(x=x, y=y, tooltip=tip)
    )
    # A label stands on the side of its point where there is room.
    middle = (float(frame["x"].min() or 0) + float(frame["x"].max() or 0)) / 2  # type: ignore[arg-type]
    named = shown.transform_filter("datum.named !== ''").encode(x=x, y=y, text=alt.Text("named:N"))
    right = haloed(named.transform_filter(f"datum.x <= {middle}"), align="left", dx=9, dy=-8)
    left = haloed(named.transform_filter(f"datum.x > {middle}"), align="right", dx=-9, dy=8)
    return alt.layer(pale, *left, *right, line, point, diamond).properties(width=theme.WIDTH + 60, height=340)
