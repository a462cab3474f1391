"""Views of the database: their columns with type and meaning, read off the migrations that make them.

No Postgres is needed to know them. A column that a view shows as it is has the meaning of the table's own column.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tokenpeak.store.tables import COMPUTED, TABLES, SqlColumn

_STATEMENT = re.compile(
    r"(?P<says>(?:^--[^\n]*\n)*)^CREATE (?:OR REPLACE )?VIEW (?P<view>\w+) AS\n(?P<query>.*?);\n"
    r"|^ALTER VIEW (?P<altered>\w+) RENAME COLUMN (?P<old>\w+) TO (?P<new>\w+);",
    re.MULTILINE | re.DOTALL,
)
_SHOWN = re.compile(r"(?P<alias>\w+)\.(?P<own>\w+)(?: AS (?P<name>\w+))?")
_SOURCE = re.compile(r"\b(?:FROM|JOIN) (\w+) (\w)\b")
_OWN = {(table.name, column.name): column for table in TABLES for column in table.columns}
_BY_NAME = {column.name: column for table in reversed(TABLES) for column in table.columns}


@dataclass(frozen=True, kw_only=True)
class ViewColumn:
    """A column of a view; `kind` is None where the view computes it."""

    name: str
    kind: str | None
    meaning: str


@dataclass(frozen=True, kw_only=True)
class View:
    """A view: what the comment at its first definition says, and its columns in order."""

    says: str
    columns: tuple[ViewColumn, ...]


def views(migrations: Mapping[str, str]) -> dict[str, View]:
    """The views by name, as these migrations leave them when applied in order."""
    says: dict[str, str] = {}
    columns: dict[str, dict[str, SqlColumn | None]] = {}
    for text in migrations.values():
        for statement in _STATEMENT.finditer(text):
            if altered := statement["altered"]:
                renamed = {statement["old"]: statement["new"]}
                columns[altered] = {renamed.get(name, name): own for name, own in columns[altered].items()}
                continue
            name = statement["view"]
            says.setdefault(name, " ".join(line.removeprefix("--").strip() for line in statement["says"].splitlines()))
            columns[name] = dict(_columns(statement["query"]))
    return {
        name: View(says=says[name], columns=tuple(_column(*each) for each in shown.items()))
        for name, shown in columns.items()
    }


def _columns(query: str) -> Iterator[tuple[str, SqlColumn | None]]:
    """The names of what the last SELECT of a query lists, each with the table's column that it is."""
    sources = {alias: table for table, alias in _SOURCE.findall(query)}
    for item in _selected(query):
        shown = _SHOWN.fullmatch(item)
        yield (
            re.split(r"[\s.]+", item)[-1],
            _OWN.get((sources.get(shown["alias"], ""), shown["own"])) if shown else None,
        )


def _column(name: str, own: SqlColumn | None) -> ViewColumn:
    """A column by what it shows of a table; else by what is computed under its name, or by that name in a table."""
    if own is None or name != own.name:
        if name in COMPUTED:
            return ViewColumn(name=name, kind=own.kind if own else None, meaning=COMPUTED[name])
        own = own or _BY_NAME[name]
    return ViewColumn(name=name, kind=own.kind, meaning=own.meaning)


def _selected(query: str) -> Iterator[str]:
    """What the last SELECT of a query lists, item by item."""
    depth, item = 0, ""
    selected = query[query.rindex("\nSELECT") :] if "\nSELECT" in query else query
    for part in re.split(r"(\bFROM\b|[(),])", selected.strip().removeprefix("SELECT")):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if depth == 0 and part in ("FROM", ","):
            yield " ".join(item.split())
            item = ""
            if part == "FROM":
                return
        else:
            item += part
