"""Picked configs: the parameters and scales by which figures of one scope show the same configs in the same form.

A figure's specification has a parameter `picked`, the labels shown in colour, and `zoom`, the ends of the part of the
horizontal axis that is shown (null: all of it). The page's script sets them. Data have `series` (the label) and `x`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from tokenpeak.report.blocks import theme

MOST = 6
"""Configs picked at once: as many as there are colours and shapes for."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])
SLOT = "indexof(picked, datum.series)"
"""Which of the picked configs a row's is; −1: none of them."""
IN_ZOOM = "!zoom || (datum.x >= zoom[0] && datum.x <= zoom[1])"


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
    """What the pointer shows of a mark: title → field with its type, such as `x:Q`; measures have four digits."""
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


def dash(key: alt.Legend | None) -> alt.StrokeDash:
    """A kind of dashes for each picked config."""
    return alt.StrokeDash("series:N", legend=key, scale=_scale(DASHES))


def _scale(values: Sequence[Any]) -> alt.Scale:
    return alt.Scale(domain=alt.ExprRef("picked"), range=list(values[:MOST]))
