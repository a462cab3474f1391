"""Blocks that pages are made of: sentences, key figures, figures, tables and texts to copy.

A notebook's cell ends in a block; it becomes the cell's output as JSON of one media type, which the site's templates
render, beside what other front ends show of it (`display`). No block holds markup: text is text, and the template
decides how it looks.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, Literal

import polars as pl

from tokenpeak.report.blocks import display
from tokenpeak.report.blocks.digits import NONE, number, shared_digits

SHOWN, SHOWN_OF_FIGURE = 1000, 100
"""Most rows that a page shows of a table, and of a figure's data: a page stays under two megabytes."""

Span = Literal["full", "half", "third", "narrow", "wide"]
"""How much of a wide window's width a block takes beside others: narrow and wide are 5 and 7 twelfths."""
Tone = Literal["", "better", "worse"]
Part = str | dict[str, str]
"""Plain text, or {"code": text}, {"strong": text}, {"link": address within the site, "text": text}."""


def code(text: object) -> Part:
    """Text that a reader could type."""
    return {"code": str(text)}


def strong(text: object) -> Part:
    """Text that carries the sentence."""
    return {"strong": str(text)}


def link(text: object, address: str) -> Part:
    """Text that leads to another page of the same sweep; `address` is relative to the sweep's folder."""
    return {"link": address, "text": str(text)}


def plain(parts: Sequence[Part]) -> str:
    """A sentence's words without their roles."""
    return "".join(part if isinstance(part, str) else part.get("text") or next(iter(part.values())) for part in parts)


class Block:
    """Base of the blocks: knows how to become a notebook output."""

    kind = ""

    def payload(self) -> dict[str, Any]:
        """The block as JSON."""
        assert is_dataclass(self), "every block is a dataclass"
        return {"kind": self.kind, **asdict(self)}

    def words(self) -> str:
        """The block as plain text, for a notebook's reader."""
        return ""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return display.bundle(self.payload(), self.words())


@dataclass(frozen=True)
class Sentence(Block):
    """One or more sentences; `tone` is answer (a page's first sentence), open where it is not known."""

    parts: tuple[Part, ...]
    tone: Literal["answer", "answer open", "note", "warning"] = "note"
    kind = "sentence"

    def words(self) -> str:
        """The sentence."""
        return plain(self.parts)


def answer(*parts: Part) -> Sentence:
    """The sentence that answers a page's question."""
    return Sentence(parts, "answer")


def open_answer(*parts: Part) -> Sentence:
    """The sentence that answers a page's question as far as it can be answered."""
    return Sentence(parts, "answer open")


def note(*parts: Part) -> Sentence:
    """A sentence beside the answer."""
    return Sentence(parts, "note")


def warning(*parts: Part) -> Sentence:
    """A sentence that a reader must not miss."""
    return Sentence(parts, "warning")


@dataclass(frozen=True, kw_only=True)
class Badge:
    """What is known of one matter in a few words; `tone`: worse is against running it, open not known."""

    label: str
    value: str
    tone: Literal["", "open", "worse"] = ""


@dataclass(frozen=True, kw_only=True)
class Badges(Block):
    """What qualifies an answer as badges, with the sentences that a reader opens."""

    badges: tuple[Badge, ...]
    sentences: tuple[Sentence, ...]
    kind = "badges"

    def words(self) -> str:
        """A line per badge and sentence."""
        return "\n".join(
            [*(f"{each.label}: {each.value}" for each in self.badges), *(s.words() for s in self.sentences)]
        )


@dataclass(frozen=True, kw_only=True)
class Steps(Block):
    """What to do next, in this order, a sentence each."""

    steps: tuple[tuple[Part, ...], ...]
    title: str = "Next"
    span: Span = "full"
    kind = "steps"

    def words(self) -> str:
        """A line per step."""
        return "\n".join(f"{place}. {plain(parts)}" for place, parts in enumerate(self.steps, 1))


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A key figure: label, value with its unit, and what it is measured against."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    mark: str = ""
    """A word that qualifies the value, such as estimated."""
    tone: Tone = ""
    """How it compares with what it is measured against."""


@dataclass(frozen=True, kw_only=True)
class Tiles(Block):
    """Key figures in a row."""

    tiles: tuple[Tile, ...]
    span: Span = "full"
    kind = "tiles"

    def words(self) -> str:
        """A line per figure."""
        return "\n".join(f"{tile.label}: {tile.value} {tile.unit} {tile.note}".rstrip() for tile in self.tiles)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A table's column. `kind` text, number, state or code; `digits` after the point for numbers.

    `digits_from` names the frame's column that holds each row's own digits; where that is null, `digits` hold. `signed`
    numbers are differences: a gain has a plus. `hidden` columns are there, and off until the reader asks for
    them.
    """

    key: str
    title: str
    unit: str = ""
    kind: Literal["text", "number", "state", "code"] = "text"
    digits: int | None = None
    digits_from: str = ""
    signed: bool = False
    hidden: bool = False
    help: str = ""
    least: float | None = None
    """A number from 0 to below this is shown as less than it, such as a chance of <0.001."""


@dataclass(frozen=True, kw_only=True)
class Table(Block):
    """Rows of cells. A cell is a mapping: `text` shown, for a number its `value`, perhaps `href`."""

    name: str
    """Unique within the page: the stem of its CSV and its state in the address."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[dict[str, Any], ...], ...]
    note: str = ""
    row_tones: tuple[str, ...] = ()
    """For each row: best, tie, pale or nothing."""
    shown: int = SHOWN
    """Most rows on the page; its CSV has all."""
    span: Span = "full"
    scope: str = ""
    """Whose figures a row's config is picked for, by its first cell; empty: rows are not to be picked."""
    kind = "table"

    def payload(self) -> dict[str, Any]:
        """The block as JSON; its cells are not copied, which would take longer than to make them."""
        return {"kind": self.kind, **asdict(replace(self, rows=())), "rows": self.rows}

    def words(self) -> str:
        """The title and the table's size."""
        return f"{self.title}: {len(self.rows)} rows, {len(self.columns)} columns"


def table(
    frame: pl.DataFrame,
    columns: Sequence[Column],
    *,
    name: str,
    title: str,
    note: str = "",
    tone: str | None = None,
    hrefs: dict[str, str] | None = None,
    shown: int = SHOWN,
    span: Span = "full",
    scope: str = "",
) -> Table:
    """A table from a frame's columns; `hrefs` maps a column to the one that holds its link, `tone` names a column."""
    present = [column for column in columns if column.key in frame.columns]
    digits = {
        c.key: c.digits if c.digits is not None else shared_digits(frame[c.key]) for c in present if c.kind == "number"
    }
    cells = [_cells(frame, column, digits.get(column.key), (hrefs or {}).get(column.key, "")) for column in present]
    tones = tuple(str(word or "") for word in frame[tone].to_list()) if tone else ()
    return Table(
        name=name,
        title=title,
        columns=tuple(present),
        rows=tuple(zip(*cells, strict=True)),
        note=note,
        row_tones=tones,
        shown=shown,
        span=span,
        scope=scope,
    )


def _cells(frame: pl.DataFrame, column: Column, digits: int | None, link_from: str) -> list[dict[str, Any]]:
    """A column's cells from the top down; `link_from` names the column of their links, which may be missing."""
    none = [None] * frame.height
    own = frame[column.digits_from].to_list() if column.digits_from else none
    links = frame[link_from].to_list() if link_from in frame.columns else none
    given = zip(frame[column.key].to_list(), own, links, strict=True)
    return [_cell(column, value, digits if places is None else places, address) for value, places, address in given]


def _cell(column: Column, value: Any, digits: int | None, address: str | None) -> dict[str, Any]:
    text = number(value, digits) if column.kind == "number" else NONE if value is None else str(value)
    if column.least is not None and value is not None and 0 <= value < column.least:
        text = f"<{column.least:g}"
    if column.signed and value is not None and value > 0 and re.search(r"[1-9]", text):
        text = f"+{text}"
    cell: dict[str, Any] = {"text": text}
    if isinstance(value, int | float) and value == value:
        cell["value"] = value
    if address:
        cell["href"] = address
    return cell


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """A text to copy, such as a command line, with what it is."""

    title: str
    text: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Snippets(Block):
    """Texts to copy, of which one is shown at a time where scripts run."""

    name: str
    snippets: tuple[Snippet, ...]
    span: Span = "full"
    kind = "snippets"

    def words(self) -> str:
        """The first text."""
        return self.snippets[0].text if self.snippets else ""


@dataclass(frozen=True, kw_only=True)
class Facts(Block):
    """Pairs of a word and what holds for it."""

    pairs: tuple[tuple[str, str], ...]
    title: str = ""
    span: Span = "full"
    kind = "facts"

    def words(self) -> str:
        """A line per pair."""
        return "\n".join(f"{word}: {value}" for word, value in self.pairs)


@dataclass(frozen=True, kw_only=True)
class Factor:
    """A factor that a reader may change: its value, between what it lies, unit, and where it comes from."""

    key: str
    title: str
    unit: str
    value: float | None
    source: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Factors(Block):
    """Factors by which the page's energy tables are derived."""

    factors: tuple[Factor, ...]
    kind = "factors"

    def words(self) -> str:
        """A line per factor."""
        return "\n".join(f"{factor.title}: {factor.value} {factor.unit} ({factor.source})" for factor in self.factors)


@dataclass(frozen=True, kw_only=True)
class Figure(Block):
    """A Vega-Lite spec with what a reader needs to trust it.

    `caption` says what to see, n, the SLO and what the interval is; `data` is the plotted frame, shown as a table and
    offered as CSV.
    """

    name: str
    title: str
    caption: str
    spec: dict[str, Any] = field(repr=False)
    data: Table
    span: Span = "full"
    scope: str = ""
    """Where scripts run, the figure answers the pointer, and shares the configs that are picked with the tables and
    figures of the same scope; empty: it is a still picture."""
    kind = "figure"

    def payload(self) -> dict[str, Any]:
        """The figure as JSON, the plotted frame as a table of its name."""
        return {
            "kind": "figure",
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "spec": self.spec,
            "span": self.span,
            "scope": self.scope,
            "data": replace(self.data, name=self.name, shown=SHOWN_OF_FIGURE).payload(),
        }

    def words(self) -> str:
        """Title and caption."""
        return f"{self.title}. {self.caption}"
