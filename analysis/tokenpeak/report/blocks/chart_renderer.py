"""Renderer of Altair charts: a chart that a notebook displays is seen in every front end, and on the site.

Altair's own renderers need a network, or a Vega-Lite version that JupyterLab does not know. One line changes that:

    from tokenpeak.report.blocks.chart_renderer import enable_charts
    enable_charts()
"""

import html.parser
import re
from collections import Counter
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.names import slug
from tokenpeak.report.blocks import display, theme
from tokenpeak.report.blocks.block import Column, Figure, Snippet, Snippets, Table, table

NAME = "tokenpeak"


def enable_charts() -> Any:
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


_VEGALITE = re.compile(r"application/vnd\.vegalite\.v\d+\+json")
_QUOTES = '\u201c\u201d"'
LONGEST = 20_000
"""Characters of printed text that a page shows."""


def plain_block(output: Any) -> dict[str, Any] | None:
    """The block of a notebook's output; None where it shows nothing."""
    data = output.get("data", {})
    for mime, spec in data.items():
        if _VEGALITE.fullmatch(mime):
            return chart_block(spec)
    if "<table" in (markup := _text(data.get("text/html", ""))):
        return frame_block(markup)
    text = _text(output.get("text", "") or data.get("text/plain", "")).strip()
    if not text or (text.startswith("<") and text.endswith(">")):
        return None
    return Snippets(name="printed", snippets=(Snippet(title="Output", text=text[:LONGEST]),)).payload()


def _text(given: str | list[str]) -> str:
    """A text that a notebook may hold as lines."""
    return given if isinstance(given, str) else "".join(given)


def frame_block(markup: str) -> dict[str, Any]:
    """A frame's table by the text of its cells."""
    reader = _Cells()
    reader.feed(markup)
    heads, *rows = reader.rows or [[]]
    # Polars writes a row of types below the heads; its texts carry quotation marks.
    if rows and reader.heads > 1:
        rows = rows[1:]
    width = len(heads)
    columns = {
        f"{place}": [row[place].strip(_QUOTES) if place < len(row) else "" for row in rows] for place in range(width)
    }
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
    frame = frame.with_columns(_numbers(frame[name]) for name in frame.columns)
    return frame_table(frame, "Table", heads).payload()


def _numbers(texts: pl.Series) -> pl.Series:
    """The column as numbers, where every text that is not empty or null is one."""
    known = texts.replace(["null", "None", "NaN", ""], [None] * 4)
    numbers = known.cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == known.null_count() < len(texts) else texts


def with_names(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks with names that differ within a page: they are addresses and files."""
    seen: Counter[str] = Counter()
    found = []
    for block in blocks:
        if name := block.get("name"):
            seen[name] += 1
            unique = name if seen[name] == 1 else f"{name}-{seen[name]}"
            data = {"data": {**block["data"], "name": unique}} if block["kind"] == "figure" else {}
            found.append({**block, "name": unique, **data})
        else:
            found.append(block)
    return found


class _Cells(html.parser.HTMLParser):
    """The text of a table's cells, row by row; `heads` counts the rows of its head."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.heads = 0
        self._in_head = self._in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a row or a cell."""
        if tag == "thead":
            self._in_head = True
        elif tag == "tr":
            self.rows.append([])
            self.heads += self._in_head
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        """End the head or a cell."""
        if tag == "thead":
            self._in_head = False
        elif tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        """Keep the text of a cell."""
        if self._in_cell:
            self.rows[-1][-1] += data
