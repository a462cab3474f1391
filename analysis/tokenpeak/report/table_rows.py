"""Rows of a page's table as HTML, written here and not by a template.

The pages of a sweep of a thousand trials have some 170,000 cells, which took Jinja a quarter of the site's time.
"""

import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from tokenpeak.report.page_weight import sortable

LONG_TEXT = 40
"""Most characters of a text in a column of usual width."""
_UNSAFE = re.compile("[&<>\"']")


def table_rows(table: Mapping[str, Any], here: str) -> Markup:
    """The rows that a page shows of a table's block; `here` is the way to the sweep's folder."""
    columns = [(column["kind"], " data-off" if column["hidden"] else "") for column in table["columns"]]
    rows = table["rows"][: table["shown"]]
    tones = table["row_tones"][: table["shown"]] or ("",) * len(rows)
    folder = _escaped(here)
    parts = []
    for row, tone in zip(rows, tones, strict=True):
        parts.append(f'      <tr class="tone-{_escaped(tone)}">' if tone else "      <tr>")
        parts += [_cell(cell, kind, off, folder) for cell, (kind, off) in zip(row, columns, strict=True)]
        parts.append("</tr>\n")
    return Markup("".join(parts))  # noqa: S704 - all of it is escaped


def _cell(cell: Mapping[str, Any], kind: str, off: str, folder: str) -> str:
    text = cell["text"]
    shown = _escaped(text)
    classes, value = f"k-{kind}", ""
    if kind == "text":
        classes += " long" if len(text) > LONG_TEXT else ""
    elif kind == "state":
        classes += f" s-{_escaped(text.replace(',', '').replace(' ', '-').replace('–', 'none'))}"
    elif kind == "number" and "value" in cell:
        value = f' data-value="{sortable(cell["value"])}"'
    if "href" in cell:
        shown = f'<a href="{folder}{_escaped(cell["href"])}">{shown}</a>'
    elif kind == "code" and text != "–":
        shown = f"<code>{shown}</code>"
    return f'\n<td class="{classes}"{off}{value}>{shown}</td>'


def _escaped(text: str) -> str:
    """The text for HTML; most has nothing to escape, and `escape` makes an object of its own for each."""
    return str(escape(text)) if _UNSAFE.search(text) else text
