"""Tables of the reference: what each page of it has below its text, made of models, commands, views and metrics."""

from dataclasses import dataclass
from typing import Any

from tokenpeak.names import slug


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row that can be linked to. Cells are Markdown of one line."""

    name: str
    """What the row is about: a key, an option, a column; the search finds it by this."""
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ReferenceTable:
    """A heading, what is said below it, and rows."""

    title: str
    """Markdown of one line; unique on its page."""
    says: str = ""
    """Markdown."""
    heads: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, record: dict[str, Any]) -> "ReferenceTable":
        """The table that `dataclasses.asdict` made a record of, from JSON."""
        entries = (Entry(name=each["name"], cells=tuple(each["cells"])) for each in record["entries"])
        return cls(**{**record, "heads": tuple(record["heads"]), "entries": tuple(entries)})

    @property
    def anchor(self) -> str:
        """Its address on the page."""
        return slug(self.title.replace("`", ""))

    def anchor_of(self, entry: Entry) -> str:
        """A row's address on the page."""
        return slug(f"{self.anchor} {entry.name}")


def row(name: str, *cells: str) -> Entry:
    """A row whose first cell is its name as code."""
    return Entry(name=name, cells=(f"`{name}`", *cells))


def listed(words: list[str], last: str = "or") -> str:
    """Words in a row: `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
