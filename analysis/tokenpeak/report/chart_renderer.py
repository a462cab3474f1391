"""Renderer of Altair charts: a chart that a notebook displays is seen in every front end, and on the site.

Altair's own renderers need a network, or a Vega-Lite version that JupyterLab does not know. One line changes that:

    from tokenpeak.report import chart_renderer
    chart_renderer.enable()
"""

from typing import Any

import altair as alt
import polars as pl

from tokenpeak.names import slug
from tokenpeak.report import display, theme
from tokenpeak.report.blocks import Column, Figure, Table, table

NAME = "tokenpeak"


def enable() -> Any:
    """Show each chart by its picture from now on, in the site's theme; a context manager that ends it again."""
    alt.data_transformers.disable_max_rows()
    alt.renderers.register(NAME, _bundle)
    return alt.renderers.enable(NAME)


def _bundle(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The MIME bundle of a chart's specification."""
    block = chart_block(spec)
    return display.bundle(block, block["title"])


def chart_block(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart's figure, by the title and description that the chart itself has, with its largest data set as table."""
    title = spec.get("title") or "Figure"
    words = title.get("text", "Figure") if isinstance(title, dict) else title
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


def frame_table(frame: pl.DataFrame, title: str, heads: list[str] | None = None) -> Table:
    """A frame as a table, its columns by their names or by `heads`."""
    columns = [
        Column(key=name, title=head, kind="number" if frame[name].dtype.is_numeric() else "text")
        for name, head in zip(frame.columns, heads or frame.columns, strict=True)
    ]
    return table(frame, columns, name=slug(title), title=title)
