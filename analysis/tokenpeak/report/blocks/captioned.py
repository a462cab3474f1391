"""Captioned figures and titled tables for notebooks, and charts and frames that a notebook displays as they are.

`{"label": "`Config`", "value": "Energy (J/token)"}` names a frame's columns as a page shows them, in that order. A unit
stands in brackets at the end, and backquotes mark what a reader could type. A `Column` says more than a text can.

Altair's own renderers need a network, or a Vega-Lite version that JupyterLab does not know. One line changes that:

    from tokenpeak.report.blocks.captioned import enable_charts
    enable_charts()
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.metrics import metric_of
from tokenpeak.paths import slug
from tokenpeak.report.blocks import display, theme
from tokenpeak.report.blocks.block import Column, Figure, Snippet, Snippets, Span, Table, table
from tokenpeak.report.blocks.charts import spec_of
from tokenpeak.report.blocks.metric_columns import in_milliseconds, metric_column

Titles = Mapping[str, str | Column]
_TITLE = re.compile(r"(`?)(.+?)\1(?: \(([^()]+)\))?")
_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
UNTITLED = {"figure": "Figure", "table": "Table"}
"""Titles of a chart and a frame that have none of their own."""
NAME = "tokenpeak"
LONGEST = 20_000
"""Characters of printed text that a page shows."""


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

    A caption says what to see, how many measurements stand behind it, and what its interval is. `span` is the part of a
    wide window that it takes: full, half or third. Figures of one `scope` share what the reader selects.

    >>> chart = alt.Chart(sweep.runs).mark_point().encode(x="request_per_s:Q", y="ttft_s_p99:Q")
    >>> titles = {"label": "`Config`", "request_per_s": "Throughput (req/s)", "ttft_s_p99": "TTFT p99 (s)"}
    >>> found = figure(chart, sweep.runs, titles, name="waits", title="Waits", caption="A point is a run.")
    >>> [column.unit for column in found.data.columns]
    ['', 'req/s', 's']
    """
    data = table(frame, columns(frame, titles), name="data", title=f"Data of the figure: {title}")
    return Figure(name=name, title=title, caption=caption, spec=spec_of(chart), data=data, span=span, scope=scope)


def enable_charts() -> Any:
    """Show each Altair chart in the site's theme from now on; a context manager that ends it again.

    It needs no network. Where a front end knows Vega-Lite, as JupyterLab does, charts are interactive.

    >>> with enable_charts():
    ...     alt.renderers.active
    'tokenpeak'
    """
    alt.data_transformers.disable_max_rows()
    alt.renderers.register(NAME, _bundle)
    return alt.renderers.enable(NAME)


def _bundle(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The MIME bundle of a chart's specification."""
    block = chart_block(spec)
    return display.bundle(block, block["title"])


def chart_block(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart's figure, by the title and description that the chart itself has, with its largest data set as table."""
    title = spec.get("title") or UNTITLED["figure"]
    words = title.get("text", UNTITLED["figure"]) if isinstance(title, dict) else title
    words = " ".join(words) if isinstance(words, list) else str(words)
    inline = spec.get("data", {}).get("values", [])
    rows = max([*spec.get("datasets", {}).values(), inline], key=len)
    frame = pl.DataFrame(rows, infer_schema_length=None, strict=False) if rows else pl.DataFrame()
    kept = {key: value for key, value in spec.items() if key != "title"}
    return Figure(
        name=slug(words),
        title=words,
        caption=str(spec.get("description", "")),
        spec={**kept, "config": theme.CONFIG},
        data=frame_table(frame, f"Data of the figure: {words}"),
    ).payload()


def frame_table(frame: pl.DataFrame, title: str) -> Table:
    """A frame as a table with all of its rows: metrics as our pages have them, other columns by their names.

    `Energy (J/token)` is a name with a unit. Truths, times and lists become text, spans of time seconds.
    """
    plain = in_milliseconds(frame.select(_plain(*each) for each in frame.schema.items()))
    shown = [_of_frame(plain[key]) for key in plain.columns]
    return table(plain, shown, name=slug(title), title=title)


def _plain(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column as a number or as text."""
    column = pl.col(name)
    if isinstance(dtype, pl.Datetime):
        return column.dt.strftime("%Y-%m-%d %H:%M:%S" + " UTC" * (dtype.time_zone == "UTC"))
    if isinstance(dtype, pl.Duration):
        return column.dt.total_microseconds() / 1e6
    if isinstance(dtype, pl.List):
        return column.cast(pl.List(pl.String)).list.join(", ") if not dtype.inner.is_nested() else column
    if isinstance(dtype, pl.Decimal):
        return column.cast(pl.Float64)
    return column.cast(pl.String) if isinstance(dtype, pl.Boolean) else column


def _of_frame(values: pl.Series) -> Column:
    """A column of a frame; figures that are all whole numbers have no digits after the point."""
    is_number = values.dtype.is_numeric()
    if is_number and metric_of(values.name):
        return metric_column(values.name)
    found = _column(values.name, values.name, is_number)
    is_whole = is_number and values.dtype.is_float() and (values.drop_nulls() % 1 == 0).all()
    return replace(found, digits=0) if is_whole else found


def frame_bundle(frame: pl.DataFrame | pl.LazyFrame | pl.Series) -> dict[str, Any]:
    """The MIME bundle of a frame or a series, all of its rows in a table."""
    rows = frame.lazy().collect() if not isinstance(frame, pl.Series) else frame.to_frame(frame.name or "value")
    found = frame_table(rows, UNTITLED["table"])
    return display.bundle(found.payload(), found.words())


def printed_block(output: Any) -> dict[str, Any] | None:
    """The block of what a cell printed, or of a value that is no figure and no frame; None where it shows nothing."""
    given = output.get("text", "") or output.get("data", {}).get("text/plain", "")
    text = (given if isinstance(given, str) else "".join(given)).strip()
    if not text or (text.startswith("<") and text.endswith(">")):
        return None
    return Snippets(name="printed", snippets=(Snippet(title="Output", text=text[:LONGEST]),)).payload()


def with_names(blocks: list[dict[str, Any]], title: str) -> list[dict[str, Any]]:
    """The blocks with names that differ within a page: they are addresses and files.

    What has no title of its own has that of the heading above it, or the page's.
    """
    seen: Counter[str] = Counter()
    found = []
    heading = title
    for given in blocks:
        block = given
        if block["kind"] == "prose":
            heading = (_HEADING.findall(block["text"]) or [heading])[-1]
        if "title" in block and block["title"] == UNTITLED.get(block["kind"]):
            block = {**block, "title": heading, "name": slug(heading) or block["name"]}
        if name := block.get("name"):
            seen[name] += 1
            unique = name if seen[name] == 1 else f"{name}-{seen[name]}"
            data = {"data": {**block["data"], "name": unique}} if block["kind"] == "figure" else {}
            found.append({**block, "name": unique, **data})
        else:
            found.append(block)
    return found
