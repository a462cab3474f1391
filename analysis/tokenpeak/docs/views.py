"""Every SQL view, table and column as tables of the reference, from the migrations and the tables' own columns.

A view's columns are read off the statements that make it, so that no Postgres is needed where a site is built; a test
holds them equal to what Postgres itself says.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tokenpeak.docs.tables import ReferenceTable, row
from tokenpeak.store.database import migrations
from tokenpeak.store.tables import TABLES, meaning_in_views

HEADS = ("Column", "Type", "Holds")
_STATEMENT = re.compile(
    r"(?P<says>(?:^--[^\n]*\n)*)^CREATE (?:OR REPLACE )?VIEW (?P<view>\w+) AS\n(?P<query>.*?);\n"
    r"|^ALTER VIEW (?P<altered>\w+) RENAME COLUMN (?P<old>\w+) TO (?P<new>\w+);",
    re.MULTILINE | re.DOTALL,
)
_KINDS = {column.name: column.kind for table in TABLES for column in table.columns}


@dataclass(kw_only=True)
class View:
    """A view: what the comment at its first definition says, and its columns in order."""

    says: str
    columns: list[str]


def views() -> dict[str, View]:
    """The views by name, as all migrations leave them."""
    found: dict[str, View] = {}
    for text in migrations().values():
        for statement in _STATEMENT.finditer(text):
            if altered := statement["altered"]:
                columns = found[altered].columns
                columns[columns.index(statement["old"])] = statement["new"]
                continue
            says = " ".join(line.removeprefix("--").strip() for line in statement["says"].splitlines())
            name = statement["view"]
            found[name] = View(
                says=found[name].says if name in found else says, columns=list(_selected(statement["query"]))
            )
    return found


def view_tables() -> list[ReferenceTable]:
    """A table for each view."""
    return [
        ReferenceTable(
            title=f"`{name}`",
            says=view.says,
            heads=HEADS,
            entries=tuple(row(column, _KINDS.get(column, "–"), meaning_in_views(column)) for column in view.columns),
        )
        for name, view in views().items()
    ]


def frame_tables() -> list[ReferenceTable]:
    """A table for each frame, which is a table of the database too."""
    return [
        ReferenceTable(
            title=f"`{table.name}`",
            says=f"A row is {table.row}. Key: {', '.join(f'`{key}`' for key in table.key)}.",
            heads=HEADS,
            entries=tuple(row(column.name, column.kind, column.meaning) for column in table.columns),
        )
        for table in TABLES
    ]


def _selected(query: str) -> Iterator[str]:
    """The names of what the last SELECT of a query lists."""
    depth, item, items = 0, "", []
    selected = query[query.rindex("\nSELECT") :] if "\nSELECT" in query else query
    for part in re.split(r"(\bFROM\b|[(),])", selected.strip().removeprefix("SELECT")):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if depth == 0 and part == "FROM":
            break
        if depth == 0 and part == ",":
            items.append(item)
            item = ""
        else:
            item += part
    for each in (*items, item):
        yield re.split(r"[\s.]+", each.strip())[-1]
