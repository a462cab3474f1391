"""Schema of the database: the statements that make its tables, views, comments and roles.

Columns of views are read off the statements that make them, so that no Postgres is needed to know them. A column that a
view shows as it is has the meaning of the table's own column.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from tokenpeak.errors import InputError
from tokenpeak.store.columns import SqlColumn
from tokenpeak.store.frames import LATENCIES
from tokenpeak.store.tables import SWEEPS, TABLES

SCHEMA = "tokenpeak"
VIEWS = resources.files("tokenpeak.store").joinpath("views.sql").read_text()
_VIEW = re.compile(
    r"(?P<meaning>(?:^--[^\n]*\n)+)^CREATE VIEW (?P<name>\w+) AS\n(?P<query>.*?);\n", re.MULTILINE | re.DOTALL
)
_SHOWN = re.compile(r"(?P<alias>\w+)\.(?P<own>\w+)(?: AS (?P<name>\w+))?")
_SOURCE = re.compile(r"\b(?:FROM|JOIN) (\w+) (\w)\b")
_OWN = {(table.name, column.name): column for table in TABLES for column in table.columns}
_BY_NAME = {column.name: column for table in reversed(TABLES) for column in table.columns}
COMPUTED = {
    "sweep_name": "The spec's name",
    "objective_holdout": "The objective of the holdout run, by which nothing was picked",
    "objective_std": "Standard deviation of the objective between launches; null with one",
    "launches": "Trials of the config that were not interrupted",
    "measured": "Launches that gave a value that may be ranked",
    "failures": "Launches that failed",
    "configs_tied": "Configs that are the highest of those that may be run, or tied with it",
    "gain_config_id": "The config whose gain decision_gain is",
    "axis": "An axis of the sweep",
    "alternative": "The config's alternative of axis",
    "other_axis": "Another axis of the sweep",
    "other_alternative": "Of a pair of axes the alternative of other_axis; of two configs the other's of axis",
    "configs": "Configs with a result that have both alternatives",
    "other_config_id": "The config that is the same but for axis",
    "ratio": "objective_mean of config_id ÷ that of other_config_id",
    **LATENCIES,
}
"""Meaning of each column that a view computes, or shows under another name."""


@dataclass(frozen=True, kw_only=True)
class ViewColumn:
    """A column of a view; `kind` is None where the view computes it."""

    name: str
    kind: str | None
    meaning: str


@dataclass(frozen=True, kw_only=True)
class View:
    """A view: the comment above its definition, and its columns in order."""

    meaning: str
    columns: tuple[ViewColumn, ...]


@cache
def views() -> dict[str, View]:
    """The views by name, in the order in which they are made."""
    return {
        view["name"]: View(
            meaning=" ".join(line.removeprefix("--").strip() for line in view["meaning"].splitlines()),
            columns=tuple(_columns(view["query"])),
        )
        for view in _VIEW.finditer(VIEWS)
    }


def _columns(query: str) -> Iterator[ViewColumn]:
    """The columns that the last SELECT of a query lists, each by the table's column that it is."""
    sources = {alias: table for table, alias in _SOURCE.findall(query)}
    for item in _selected(query):
        shown = _SHOWN.fullmatch(item)
        own = _OWN.get((sources.get(shown["alias"], ""), shown["own"])) if shown else None
        yield _column(re.split(r"[\s.]+", item)[-1], own)


def _column(name: str, own: SqlColumn | None) -> ViewColumn:
    """A column by the table's own that it shows; else as computed under its name, or by that name in a table."""
    if own is None or name != own.name:
        if name in COMPUTED:
            return ViewColumn(name=name, kind=own.kind if own else None, meaning=COMPUTED[name])
        own = own or _BY_NAME[name]
    return ViewColumn(name=name, kind=own.kind, meaning=own.meaning)


def _selected(query: str) -> list[str]:
    """The items that the last SELECT of a query lists; only a function's arguments have further commas."""
    listed = query.rpartition("SELECT\n")[2].partition("\nFROM ")[0]
    return [" ".join(item.split()) for item in re.split(r",(?![^()]*\))", listed)]


def definitions() -> Iterator[str]:
    """The statements that make the tables and the views."""
    for table in TABLES:
        columns = [f"{column.name} {column.kind}" for column in table.columns]
        if not table.is_bulk:
            columns.append(f"PRIMARY KEY ({', '.join(table.key)})")
            columns += ["FOREIGN KEY (sweep_id) REFERENCES sweeps ON DELETE CASCADE"] if table is not SWEEPS else []
        yield f"CREATE TABLE {table.name} ({', '.join(columns)})"
        if table.is_bulk:
            yield f"CREATE INDEX {table.name}_of_trial ON {table.name} (sweep_id, trial_id)"
    yield VIEWS


def shape() -> str:
    """Identifies the tables and views of this version."""
    return digest("\n".join(definitions()))


def digest(text: str) -> str:
    """Short words that differ where texts do."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


KNOWN = frozenset({*(table.name for table in TABLES), *views(), "migrations"})
"""All tables and views that TokenPeak makes, or an older one made."""


def comments() -> Iterator[tuple[str, str]]:
    """Each table, view and column, as `COMMENT ON` names it, with its meaning."""
    for table in TABLES:
        yield f"TABLE {table.name}", f"A row is {table.row_is}."
        yield from ((f"COLUMN {table.name}.{column.name}", column.meaning) for column in table.columns)
    for name, view in views().items():
        yield f"VIEW {name}", view.meaning
        yield from ((f"COLUMN {name}.{column.name}", column.meaning) for column in view.columns)


Purpose = Literal["reading", "loading"]
_OWNED = """\
DO $$ DECLARE one record; BEGIN
FOR one IN SELECT relname, relkind FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'v')
LOOP EXECUTE format('ALTER %s {schema}.%I OWNER TO {role}',
    CASE one.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, one.relname); END LOOP; END $$"""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def role_statements(role: str, purpose: Purpose, database: str) -> Iterator[str]:
    """The SQL that makes a role, or gives one that is there its rights; again changes nothing.

    One for reading selects from the schema's tables and views, those that are made later too. One for loading owns the
    schema, and nothing else: a superuser or the database's owner gives that once. InputError for a name that would
    need quotes.
    """
    if not _NAME.fullmatch(role) or role.startswith("pg_"):
        raise InputError(f"A role cannot be called {role!r}; give small letters, digits and underscores.")
    place = '"' + database.replace('"', '""') + '"'
    yield (
        f"DO $$ BEGIN CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    yield f"GRANT CONNECT ON DATABASE {place} TO {role}"
    yield f"ALTER ROLE {role} IN DATABASE {place} SET search_path TO {SCHEMA}"
    if purpose == "reading":
        yield f"GRANT USAGE ON SCHEMA {SCHEMA} TO {role}"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {role}"
        yield f"ALTER DEFAULT PRIVILEGES IN SCHEMA {SCHEMA} GRANT SELECT ON TABLES TO {role}"
        return
    yield f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"
    yield _OWNED.format(schema=SCHEMA, role=role)
    yield f"ALTER SCHEMA {SCHEMA} OWNER TO {role}"
