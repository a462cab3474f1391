"""CSV files by a mapping: each row is a run."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError, suggestion
from tokenpeak.exchange.foreign import (
    ForeignNode,
    ForeignRun,
    Import,
    energy_of,
    startup_of,
    summary_of,
    unknown_target,
)
from tokenpeak.exchange.reading import Scalar, checked_number, first_mistake, plain, read_text, source_file
from tokenpeak.paths import inside
from tokenpeak.records import Imported, SourceFile
from tokenpeak.spec.load import ExternalLoad
from tokenpeak.spec.workload import ExternalWorkload

LONGEST_NAME = 200
MOST_COLUMNS, MOST_ROWS = 2_000, 20_000


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(_Strict):
    """A value of the row."""

    column: str
    scale: float | None = None
    map: dict[str, Scalar] | None = None


Value = Cell | Scalar


class Join(_Strict):
    """Columns of another CSV, for rows that agree in a column."""

    file: str
    on: str


class TableEntry(_Strict):
    """One CSV."""

    file: str
    join: Join | None = None
    where: dict[str, str] = {}
    """Only rows whose cells are these."""
    node: Value = "node"
    config: Value = None
    """None: made of the axes."""
    model: Value = "unknown"
    engine_version: Value = None
    flags: dict[str, Value] = {}
    env: dict[str, Value] = {}
    axes: dict[str, Value] = {}
    """Axis → alternative. One that is a flag's name sets that flag, unless `labels` lists it."""
    labels: tuple[str, ...] = ()
    """Axes that are names only."""
    replicate: Value = None
    workload: dict[str, Value] = {}
    level: dict[str, Value] = {}
    fields: dict[str, Value]
    slo_met: Value = None
    quality: Value = None
    """What the source says of the answers, in its own words."""
    ignored: dict[str, str] = {}
    """Column → why it has no place."""


class Mapping_(_Strict):  # noqa: N801 - the name of the thing, which the standard library has taken
    """A mapping file."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    description: str = ""
    imported_at: datetime | None = None
    theoretical: int | None = None
    provenance: dict[str, Any] = {}
    objective: dict[str, str] = {}
    slo: dict[str, float] = {}
    energy: dict[str, float | str] = {}
    nodes: dict[str, ForeignNode]
    tables: tuple[TableEntry, ...] = Field(min_length=1)


def read_mapping(path: Path) -> Mapping_:
    """The mapping in a YAML file; ArchiveError says which key is wrong."""
    raw = bounded.read_yaml(path)
    if not isinstance(raw, dict):
        raise ArchiveError(f"{path}: a mapping file holds keys such as nodes and tables.")
    try:
        return Mapping_.model_validate(raw)
    except ValidationError as error:
        place = error.errors()[0]["loc"]
        hint = f" {suggestion(str(place[0]), Mapping_.model_fields)}" if len(place) == 1 else ""
        raise ArchiveError(f"{path}: {first_mistake(error)}{hint}") from error


Row = Mapping[str, str]


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV with a head; ArchiveError for one without columns, or whose rows have more cells than it."""
    reader = csv.DictReader(io.StringIO(read_text(path)), restkey="", restval="")
    try:
        if len(reader.fieldnames or []) > MOST_COLUMNS:
            raise ArchiveError(f"{path}: more than {MOST_COLUMNS:,} columns, which no result has.")
        rows = list(islice(reader, MOST_ROWS + 1))
    except csv.Error as error:
        raise ArchiveError(f"{path}: no CSV (line {reader.line_num}: {error}).") from error
    if len(rows) > MOST_ROWS:
        raise ArchiveError(f"{path}: more than {MOST_ROWS:,} rows, and each row is a run. Give the results alone.")
    heads = reader.fieldnames or []
    if not heads or len(set(heads)) != len(heads):
        raise ArchiveError(f"{path}: the first line must name each column, once.")
    if max(map(len, heads)) > LONGEST_NAME:
        raise ArchiveError(f"{path}: a column's name has more than {LONGEST_NAME} characters.")
    for number, row in enumerate(rows, start=2):
        if "" in row and "" not in heads:
            raise ArchiveError(f"{path}: line {number} has more cells than the head ({len(heads)}).")
    return rows


def value_of(value: Value, row: Row, place: str) -> Scalar:
    """The value for this row; None where its cell is empty. `place` names file and line in errors."""
    if not isinstance(value, Cell):
        return value
    if value.column not in row:
        raise ArchiveError(f"{place}: no column is called {value.column!r}. {suggestion(value.column, row)}")
    cell = (row[value.column] or "").strip()
    if not cell:
        return None
    if value.map is not None:
        if cell not in value.map:
            raise ArchiveError(f"{place}: {value.column} is {cell!r}. {suggestion(cell, value.map)}")
        return value.map[cell]
    if value.scale is not None:
        return number_of(cell, f"{place}: {value.column}") * value.scale
    return plain(cell)


def number_of(value: object, place: str) -> float:
    """The value as a figure; ArchiveError names the place otherwise."""

    def refuse(words: str) -> None:
        raise ArchiveError(f"{place} {words}.")

    return checked_number(value, refuse)


def read_tables(path: Path) -> tuple[Import, str]:
    """The import that the mapping file at `path` describes, and its id. Its CSV files lie beside it."""
    mapping = read_mapping(path)
    root = path.parent
    runs: list[ForeignRun] = []
    files: list[SourceFile] = []
    fields: dict[str, str] = {}
    unmapped: list[str] = []
    for table in mapping.tables:
        for name in dict.fromkeys(target for target in table.fields if unknown_target(target)):
            raise ArchiveError(f"{path}: {unknown_target(name)}")
        rows = _joined(table, root)
        for number, row in rows:
            runs.append(_run(table, mapping, row, f"{table.file}, line {number}"))
        sources = [root / table.file, *([root / table.join.file] if table.join else [])]
        files += [file for source in sources if (file := source_file(source, root)) not in files]
        fields |= _known_columns(table)
        unmapped += _unmapped(table, rows)
    try:
        imported = Imported.model_validate(
            {
                **mapping.provenance,
                "format": "table",
                "files": files,
                "mapping": fields,
                "unmapped": [*mapping.provenance.get("unmapped", ()), *dict.fromkeys(unmapped)],
            }
        )
    except ValidationError as error:
        raise ArchiveError(f"{path}: provenance.{first_mistake(error)}") from error
    return (
        Import(
            name=mapping.name,
            description=mapping.description,
            runs=tuple(runs),
            nodes=tuple(replace(node, name=name) for name, node in mapping.nodes.items()),
            imported=imported,
            imported_at=mapping.imported_at,
            theoretical=mapping.theoretical,
            objective=mapping.objective,
            slo=mapping.slo,
            energy=mapping.energy,
        ),
        mapping.id,
    )


def _joined(table: TableEntry, root: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows that are wanted with their line, each with the columns that a joined file adds."""
    rows = list(enumerate(read_rows(inside(root, table.file)), start=2))
    rows = [(n, row) for n, row in rows if all(row.get(column) == cell for column, cell in table.where.items())]
    if table.join is None:
        return rows
    others = read_rows(inside(root, table.join.file))
    key = table.join.on
    heads = [head for head in (others[0] if others else {}) if head != key]
    by_key: dict[str, list[dict[str, str]]] = {}
    for other in others:
        by_key.setdefault(other.get(key, ""), []).append(other)
    empty = dict.fromkeys(heads, "")
    joined = []
    for number, row in rows:
        if key not in row:
            raise ArchiveError(f"{table.file}: no column {key!r} to join {table.join.file} by.")
        joined += [(number, {**empty, **other, **row}) for other in by_key.get(row[key], [{}])]
        if len(joined) > MOST_ROWS:
            raise ArchiveError(
                f"{table.file}: joined with {table.join.file} by {key!r} it gives more than {MOST_ROWS:,} rows."
            )
    return joined


def _run(table: TableEntry, mapping: Mapping_, row: dict[str, str], place: str) -> ForeignRun:
    def read(value: Value) -> Scalar:
        return value_of(value, row, place)

    def text(value: Value) -> str | None:
        cell = read(value)
        return None if cell is None else str(cell)

    axes = {axis: cell for axis, value in table.axes.items() if (cell := read(value)) is not None}
    flags = {flag: cell for flag, value in table.flags.items() if (cell := read(value)) is not None}
    flags |= {axis: cell for axis, cell in axes.items() if axis not in table.labels}
    choices = {axis: _word(cell) for axis, cell in axes.items()}
    values = {
        name: number_of(cell, f"{place}: {name}")
        for name, value in table.fields.items()
        if (cell := read(value)) is not None
    }
    node = text(table.node) or "node"
    if node not in mapping.nodes:
        raise ArchiveError(f"{place}: node {node!r} is not among the mapping's nodes ({', '.join(mapping.nodes)}).")
    met = read(table.slo_met)
    if met is not None and not isinstance(met, bool):
        raise ArchiveError(f"{place}: slo_met must be true or false, not {met!r}.")
    replicate = read(table.replicate)
    try:
        return ForeignRun(
            node=node,
            config=text(table.config) or ", ".join(f"{axis}={word}" for axis, word in choices.items()) or "as-run",
            model=text(table.model) or "unknown",
            flags=flags,
            env={name: cell for name, value in table.env.items() if (cell := text(value)) is not None},
            engine_version=text(table.engine_version),
            choices=choices,
            replicate=None if replicate is None else int(number_of(replicate, f"{place}: replicate")),
            workload=ExternalWorkload.model_validate({"name": "imported", **_known(table.workload, row, place)}),
            level=ExternalLoad.model_validate({"external": True, **_known(table.level, row, place)}),
            summary=summary_of(values),
            startup=startup_of(values),
            stated_quality=text(table.quality),
            slo_met=met,
            energy=energy_of(values, "estimated_tdp"),
        )
    except ValidationError as error:
        raise ArchiveError(f"{place}: {first_mistake(error)}") from error


def _known(values: dict[str, Value], row: dict[str, str], place: str) -> dict[str, Scalar]:
    return {key: cell for key, value in values.items() if (cell := value_of(value, row, place)) is not None}


def _word(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(table: TableEntry) -> dict[str, Value]:
    """Each of our fields with the value that fills it."""
    groups: Sequence[tuple[str, dict[str, Value]]] = (
        ("", table.fields),
        ("flags.", {**table.flags, **{k: v for k, v in table.axes.items() if k not in table.labels}}),
        ("axes.", {k: v for k, v in table.axes.items() if k in table.labels}),
        ("env.", table.env),
        ("workload.", table.workload),
        ("level.", table.level),
    )
    values = {prefix + name: value for prefix, values in groups for name, value in values.items()}
    names = ("node", "config", "model", "engine_version", "replicate", "slo_met", "quality")
    return values | {name: value for name in names if (value := getattr(table, name)) is not None}


def _known_columns(table: TableEntry) -> dict[str, str]:
    """Field → the column that it is from, in words."""
    columns = {}
    for name, value in _values(table).items():
        if isinstance(value, Cell):
            how = f" × {value.scale:g}" if value.scale is not None else " by table" if value.map is not None else ""
            columns[name] = f"{value.column}{how}"
    return columns


def _unmapped(table: TableEntry, rows: Sequence[tuple[int, dict[str, str]]]) -> list[str]:
    """The columns that no field takes, with the reason where the mapping gives it."""
    used = {value.column for value in _values(table).values() if isinstance(value, Cell)} | set(table.where)
    used |= {table.join.on} if table.join else set()
    heads = list(rows[0][1]) if rows else []
    return [
        f"{table.file}: {head}: {table.ignored[head]}" if head in table.ignored else f"{table.file}: {head}"
        for head in heads
        if head not in used
    ]
