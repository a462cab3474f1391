"""Charts: pure functions from a frame to an Altair chart, in the site's theme, and configs that a reader picks in them.

Every chart takes frames whose columns are named in its docstring and returns a chart without title or caption; those
belong to the figure around it.

Figures of one scope show the same picked configs in the same form. Their specifications have a parameter `picked`, the
labels shown in colour, and `zoom`, the ends of the part of the horizontal axis that is shown (null: all of it). The
page's script sets them. Data have `series` (the label) and `x`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.report.blocks import theme
from tokenpeak.report.blocks.digits import percent, shared_digits

CHARTED = 40
"""Most configs that a chart of dots shows; its table has all."""
EFFECTS_WIDTH, HEATMAP_ROOM = 320, 1040
"""Pixels: the plot of effects, what the heatmaps of one row may take beside their labels."""
MOST = 6
"""Configs picked at once: as many as there are colours and shapes for."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])
LOG_GRID: dict[str, Any] = {
    "condition": {"test": "indexof('125', format(datum.value, '.0e')[0]) >= 0", "value": 1},
    "value": 0,
}
"""Opacity of a logarithmic axis's lines: of those at 1, 2 and 5 of each decade alone."""
SLOT = "indexof(picked, datum.series)"
"""Which of the picked configs a row's is; −1: none of them."""
IN_ZOOM = "!zoom || (datum.x >= zoom[0] && datum.x <= zoom[1])"


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
    zero: bool = False,
    width: int = theme.WIDTH,
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
    ticks = digits.replace("f", "~f") if zero else ",.4~r"
    axis = alt.Axis(format=ticks, orient="top")
    base = alt.Chart(shown).encode(y=y)
    layers: list[alt.Chart | alt.LayerChart] = []
    group = shown.filter(pl.col("group").is_in(["best", "tie"]))
    if group.height > 1:
        # What overlaps the interval of the best is tied with it.
        of = group.filter(pl.col("group") == "best", pl.col("low").is_not_null())
        edges = (of if of.height else group).select(
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
    ends = {"95% low": "low:Q", "95% high": "high:Q"} if shown["low"].is_not_null().any() else {}
    if ends:
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
            tooltip=tooltips({"config": "label:N", title: "value:Q", **ends, "launches": "n:Q"}),
        )
    )
    named = (
        base.transform_filter("isValid(datum.value)")
        .transform_calculate(anchor="isValid(datum.high) ? datum.high : datum.value")
        .encode(x=alt.X("anchor:Q"), text=alt.Text("value:Q", format=digits))
    )
    layers += [point, *haloed(named, align="left", dx=10, color=theme.QUIET)]
    if shown["value"].is_null().any():
        layers.append(
            base.transform_filter("!isValid(datum.value)")
            .mark_text(align="left", color=theme.BAD, fontSize=11, fontStyle="italic")
            .encode(x=alt.value(6), text=alt.Text("remark:N"))
        )
    return alt.layer(*layers, width=width, height=alt.Step(24))


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
    tip = tooltips(
        {
            across: "across:N",
            down: "down:N",
            "mean": "value:Q",
            "difference": "gain:Q",
            "configs": "n:Q",
            "remark": "why:N",
        }
    )
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
    """Effects of alternatives by themselves: a dot and interval each, for each hardware.

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
        axis=alt.Axis(labelExpr=sign, values=_ticks_of_shares(frame.select("effect", "low", "high"))),
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
    said = base.mark_text(align="left", dx=10, fontSize=11, color=theme.QUIET).encode(
        x=alt.value("width"), text="words:N"
    )
    # A narrow window goes without.
    said = said.properties(name="beside")
    layers = [zero, bar, dot, said] if frame["low"].is_not_null().any() else [zero, dot, said]
    layered = alt.layer(*layers, data=frame.with_columns(words=_effect_words(frame)))
    return _by_hardware(layered, frame, width=EFFECTS_WIDTH, step=22, room=EFFECTS_WIDTH, least=70)


def _ticks_of_shares(shares: pl.DataFrame) -> list[float]:
    """At most seven even steps around 0, which is among them; nothing is lost by more than all of it."""
    ends = [end for column in shares for end in (column.min(), column.max()) if isinstance(end, float)]
    low, high = max(-1.0, min([0.0, *ends])), max([0.0, *ends])
    width = (high - low) / 6
    step = 10 ** math.floor(math.log10(width)) if width > 0 else 1.0
    step = next((step * factor for factor in (1, 2, 2.5, 5) if step * factor >= width), step * 10)
    return [step * index for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _effect_words(frame: pl.DataFrame) -> pl.Series:
    """An effect with its interval, as stands beside it."""
    words = []
    for effect, low, high in frame.select("effect", "low", "high").iter_rows():
        ends = f" ({percent(low)} to {percent(high)})" if low is not None and high is not None else ""
        words.append(f"{percent(effect)}{ends}" if effect is not None else "")
    return pl.Series(words, dtype=pl.String)


def _by_hardware(
    chart: alt.LayerChart | alt.FacetChart,
    frame: pl.DataFrame,
    *,
    width: int,
    step: int,
    room: int,
    least: int | None = None,
) -> alt.TopLevelMixin:
    """The chart for each kind of hardware, in rows of as many as there is room for; a narrow window gets fewer."""
    kinds = frame["hardware"].unique(maintain_order=True).to_list()
    if len(kinds) == 1:
        return chart.properties(width=width, height=alt.Step(step), usermeta={"least": least or width})
    each = alt.Facet("hardware:N", title=None, sort=kinds, header=alt.Header(labelLimit=width + 60))
    row = min(len(kinds), max(1, room // (width + 20)))
    faceted: alt.FacetChart = chart.properties(width=width, height=alt.Step(step)).facet(each, columns=row)
    resolved: alt.FacetChart = faceted.resolve_axis(x="independent")
    return resolved


def haloed(base: alt.Chart, **mark: Any) -> list[alt.Chart]:
    """Labels at points, and below them the same in the paper's colour and bolder: what lies behind stays apart."""
    halo = base.mark_text(fontSize=11, stroke=theme.PAPER, strokeWidth=4, **mark)
    return [halo, base.mark_text(fontSize=11, **mark)]


def metric_axis(words: str, scale: alt.Scale) -> alt.Y:
    """The vertical axis of a panel; a logarithmic one says so, as the panel beside it may be linear."""
    log = scale.to_dict().get("type") == "log"
    axis = alt.Axis(tickCount=5, format=",.4~r", gridOpacity=LOG_GRID if log else alt.Undefined)
    return alt.Y("value:Q", title=f"{words}, log scale" if log else words, scale=scale, axis=axis)


def parameters(names: Sequence[str]) -> list[Any]:
    """The parameters `picked`, at first these names, and `zoom`, as a chart's `params`.

    Altair copies a whole chart to add a parameter to it, so each is given when the chart is made.
    """
    made = [alt.param(name="picked", value=list(names)[:MOST]), alt.param(name="zoom", value=None)]
    return [each.param for each in made]


def split(chart: alt.Chart) -> tuple[alt.Chart, alt.Chart]:
    """The chart's rows in the zoom: those of configs that are not picked, and those of the picked ones."""
    own = chart.transform_filter(IN_ZOOM).transform_calculate(slot=SLOT)
    return own.transform_filter("datum.slot < 0"), own.transform_filter("datum.slot >= 0")


def legend(roles: Mapping[str, str], *, columns: int = 3) -> alt.Legend:
    """The picked configs by label, after the role that some have; a click takes one away."""
    words = {label: f"{role}: {label}" if role != label else label for label, role in roles.items()}
    said = json.dumps(words, ensure_ascii=False)
    return alt.Legend(
        title=None,
        columns=columns,
        labelLimit=330,
        columnPadding=22,
        labelExpr=f"({said})[datum.label] || datum.label" if words else alt.Undefined,
    )


def tooltips(fields: Mapping[str, str]) -> list[alt.Tooltip]:
    """Tooltips of a mark: title → field with its type, such as `x:Q`; measures have four digits."""
    return [
        alt.Tooltip(field, title=title, format=",.4~r" if field.endswith(":Q") and field != "n:Q" else alt.Undefined)
        for title, field in fields.items()
    ]


def colour(key: alt.Legend | None) -> alt.Color:
    """A colour for each picked config."""
    return alt.Color("series:N", legend=key, scale=_scale(theme.SERIES))


def shape(key: alt.Legend | None) -> alt.Shape:
    """A shape for each picked config."""
    return alt.Shape("series:N", legend=key, scale=_scale(theme.SHAPES))


def dash(key: alt.Legend) -> alt.StrokeDash:
    """A kind of dashes for each picked config, for lines without points; the legend shows a piece of each line."""
    lines = key.copy()
    lines.symbolType, lines.symbolSize = "stroke", 500
    return alt.StrokeDash("series:N", legend=lines, scale=_scale(DASHES))


BETWEEN = "Dotted: nothing was measured between two points."


def joined(levels: int) -> dict[str, Any]:
    """How a line joins measured points: thin, and dotted between two alone, where nothing says how it goes between."""
    return {"strokeWidth": 1.2} if levels > 2 else {"strokeWidth": 1.2, "strokeDash": [1, 3]}


def _scale(values: Sequence[Any]) -> alt.Scale:
    return alt.Scale(domain=alt.ExprRef("picked"), range=list(values[:MOST]))
