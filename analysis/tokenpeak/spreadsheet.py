"""CSV cells that no spreadsheet takes for a formula: the one escaper of every CSV that is written.

A text that begins with = + - @, a tab or a line's end gets an apostrophe in front, and so does one that begins with an
apostrophe. Reading back is therefore exact: take one apostrophe off each text that begins with one (`plain`). Numbers,
and texts that are numbers, stay as they are. Texts are quoted, so that no separator of another locale splits them.
"""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from tokenpeak.files import replacing
from tokenpeak.terminal import visible

STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")
"""How a formula may begin, the full-width signs of East Asian spreadsheets included."""
_NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_IS_NUMBER = re.compile(_NUMBER)
_MAY_BE_FORMULA = rf"^\s*[{''.join(re.escape(start) for start in STARTS)}]"
_IS_FORMULA = re.compile(_MAY_BE_FORMULA)
_SPLITS = re.compile(r"[\",;\t\n]")


def cell(value: object) -> object:
    """The value as a cell; a text that a spreadsheet might run gets an apostrophe in front."""
    if not isinstance(value, str) or _IS_NUMBER.fullmatch(value) or not _IS_FORMULA.match(value):
        return value
    return f"'{value}"


def plain(text: str) -> str:
    """A cell's text before `cell`."""
    return text.removeprefix("'")


def as_cells(text: str) -> str:
    """CSV of another program with each of its cells as `cell` has it, visible, and quoted where any locale would split.

    Its lines end as ours do, and a line without a cell stays one.
    """
    former = csv.field_size_limit(len(text) + 1)
    try:
        return "".join(",".join(map(_quoted, row)) + "\n" for row in csv.reader(io.StringIO(text, newline="")))
    finally:
        csv.field_size_limit(former)


def _quoted(text: str) -> str:
    shown = str(cell(visible(text)))
    return '"' + shown.replace('"', '""') + '"' if _SPLITS.search(shown) else shown


def write_rows(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the head first; what is None is an empty cell."""
    with replacing(path, durable=False) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        for row in rows:
            writer.writerow([cell(value) for value in row])


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame, its lists as text with `; ` between their items."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    flat = frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join("; ") for name in lists)
    texts = [name for name, kind in flat.schema.items() if kind == pl.String]
    is_formula = pl.col(texts).str.contains(_MAY_BE_FORMULA) & ~pl.col(texts).str.contains(f"^{_NUMBER}$")
    if texts:
        flat = flat.with_columns(
            pl.when(is_formula).then(pl.lit("'") + pl.col(texts)).otherwise(pl.col(texts)).name.keep()
        )
    with replacing(path, durable=False) as part:
        flat.rename({name: str(cell(name)) for name in flat.columns}).write_csv(part, quote_style="non_numeric")
