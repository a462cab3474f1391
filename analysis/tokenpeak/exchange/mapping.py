"""The mapping file by which any CSV becomes an archive: which column is which figure, and what is known besides.

    id: my-old-benchmark                  the archive's folder
    name: my-old-benchmark
    provenance: {title: …, url: …, unknown: [...], cautions: [...]}
    nodes: {node: {gpu: NVIDIA L4, count: 1}}
    objective: {metric: output_tok_per_s}
    tables:
      - file: results.csv
        model: meta-llama/Llama-3.1-8B-Instruct
        axes: {max_num_seqs: {column: seqs}}
        level: {concurrency: 32, requests: 100}
        fields:
          output_tok_per_s: {column: tok/s}
          ttft_s_mean: {column: TTFT (ms), scale: 0.001}

Wherever a value is wanted, `{column: NAME}` takes it from the row, times `scale`, or by `map: {cell: value}`. An empty
cell is unknown.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError, suggestion
from tokenpeak.exchange.reading import checked_number, read_text

LONGEST_NAME = 200
MOST_COLUMNS, MOST_ROWS = 2_000, 20_000

Scalar = bool | int | float | str | None


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(_Strict):
    """A value of the row."""

    column: str
    scale: float | None = None
    map: dict[str, Scalar] | None = None
    text: bool = False
    """Keep the cell's text as it is, rather than as a number where it is one."""


Value = Cell | Scalar


class NodeEntry(_Strict):
    """A machine."""

    gpu: str | None = None
    count: int = Field(default=1, ge=1, le=4096)
    power_limit_w: float | None = None
    cpu: str | None = None
    cpu_cores: int | None = None
    engine_version: str | None = None


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
    energy_source: str = "estimated_tdp"
    energy_boundary: str = "gpu_boards"
    ignored: dict[str, str] = {}
    """Column → why it has no place."""


class Mapping_(_Strict):  # noqa: N801 - the name of the thing, which the standard library has taken
    """A mapping file."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    description: str = ""
    imported_at: datetime | None = None
    theoretical: int | None = None
    study: str | None = None
    provenance: dict[str, Any] = {}
    objective: dict[str, str] = {}
    slo: dict[str, float] = {}
    energy: dict[str, float | str] = {}
    nodes: dict[str, NodeEntry]
    tables: tuple[TableEntry, ...] = Field(min_length=1)


def read_mapping(path: Path) -> Mapping_:
    """The mapping in a YAML file; ArchiveError says which key is wrong."""
    raw = bounded.read_yaml(path)
    if not isinstance(raw, dict):
        raise ArchiveError(f"{path}: a mapping file holds keys such as nodes and tables.")
    try:
        return Mapping_.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        hint = f" {suggestion(str(first['loc'][-1]), Mapping_.model_fields)}" if len(first["loc"]) == 1 else ""
        raise ArchiveError(f"{path}: {place}: {first['msg']}.{hint}") from error


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


def columns_used(values: Sequence[Value]) -> set[str]:
    """The columns that these values take from."""
    return {value.column for value in values if isinstance(value, Cell)}


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
    return cell if value.text else plain(cell)


def plain(cell: str) -> Scalar:
    """A cell as a YAML reader would take it: true, false, a whole number, a number or a text."""
    if cell.casefold() in ("true", "false"):
        return cell.casefold() == "true"
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def number_of(value: object, place: str) -> float:
    """The value as a figure; ArchiveError names the place otherwise."""

    def refuse(words: str) -> None:
        raise ArchiveError(f"{place} {words}.")

    return checked_number(value, refuse)
