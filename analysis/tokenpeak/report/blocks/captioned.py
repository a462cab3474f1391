"""Captioned figures and titled tables for notebooks: a chart or a frame, with its columns named in short.

`{"label": "`Config`", "value": "Energy (J/token)"}` names a frame's columns as a page shows them, in that order. A unit
stands in brackets at the end, and backquotes mark what a reader could type. A `Column` says more than a text can.
"""

import re
from collections.abc import Mapping

import altair as alt
import polars as pl

from tokenpeak.report.blocks.block import SHOWN, Column, Figure, Span, Table, table
from tokenpeak.report.blocks.charts import spec_of

Titles = Mapping[str, str | Column]
_TITLE = re.compile(r"(`?)(.+?)\1(?: \(([^()]+)\))?")


def columns(frame: pl.DataFrame, titles: Titles) -> list[Column]:
    """The columns of `titles`, those of numbers as numbers."""
    return [
        title if isinstance(title, Column) else _column(key, title, frame.schema[key].is_numeric())
        for key, title in titles.items()
    ]


def _column(key: str, title: str, numeric: bool) -> Column:
    found = _TITLE.fullmatch(title)
    assert found is not None, f"{key} has a title"
    quoted, words, unit = found.groups()
    return Column(key=key, title=words, unit=unit or "", kind="code" if quoted else "number" if numeric else "text")


def figure(
    chart: alt.TopLevelMixin,
    frame: pl.DataFrame,
    titles: Titles,
    *,
    name: str,
    title: str,
    caption: str,
    span: Span = "full",
    scope: str = "",
) -> Figure:
    """The chart with its caption, and the plotted frame as its data; `name` is unique within the page.

    A caption says what to see, how many measurements stand behind it, and what its interval is. `span` and `scope` are
    those of a Figure.
    """
    data = table(frame, columns(frame, titles), name="data", title=f"Data of the figure: {title}")
    return Figure(name=name, title=title, caption=caption, spec=spec_of(chart), data=data, span=span, scope=scope)


def listed(
    frame: pl.DataFrame,
    titles: Titles,
    *,
    name: str,
    title: str,
    note: str = "",
    links: dict[str, str] | None = None,
    shown: int = SHOWN,
    span: Span = "full",
    scope: str = "",
) -> Table:
    """The frame as a table; `links` maps a column to the one that holds its address, `shown` is the most rows."""
    return table(
        frame,
        columns(frame, titles),
        name=name,
        title=title,
        note=note,
        hrefs=links,
        shown=shown,
        span=span,
        scope=scope,
    )
