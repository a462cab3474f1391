"""Columns and tables: name, kind and meaning of a column in frames and in the database, and short ways to write it."""

import json
from dataclasses import dataclass
from typing import Literal

import polars as pl

from tokenpeak.metrics import BY_NAME, STATISTICS

Kind = Literal["text", "bigint", "double precision", "boolean", "timestamptz", "jsonb", "text[]", "double precision[]"]
"""A column's type in Postgres."""

_DTYPES: dict[str, pl.DataType] = {
    "text": pl.String(),
    "bigint": pl.Int64(),
    "double precision": pl.Float64(),
    "boolean": pl.Boolean(),
    "timestamptz": pl.Datetime("us", "UTC"),
    "jsonb": pl.String(),
    "text[]": pl.List(pl.String()),
    "double precision[]": pl.List(pl.Float64()),
}


@dataclass(frozen=True, kw_only=True)
class SqlColumn:
    """A column. A `jsonb` one is canonical JSON text in frames."""

    name: str
    kind: Kind
    meaning: str
    nullable: bool = True

    @property
    def dtype(self) -> pl.DataType:
        """Its type in frames."""
        return _DTYPES[self.kind]


@dataclass(frozen=True, kw_only=True)
class SqlTable:
    """A table: what a row is, its key and its columns, in order."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[SqlColumn, ...]

    def schema(self) -> dict[str, pl.DataType]:
        """Column → type, as frames have it."""
        return {column.name: column.dtype for column in self.columns}


def canonical_json(value: object) -> str:
    """JSON text that is equal whenever the values are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def columns_of(*rows: str) -> tuple[SqlColumn, ...]:
    """Columns from lines `name kind meaning`; an exclamation mark after the kind forbids null."""
    found = []
    for row in rows:
        name, kind, meaning = row.split(" ", 2)
        nullable = not kind.endswith("!")
        found.append(SqlColumn(name=name, kind=_KINDS[kind.removesuffix("!")], meaning=meaning, nullable=nullable))
    return tuple(found)


_KINDS: dict[str, Kind] = {
    "text": "text",
    "int": "bigint",
    "float": "double precision",
    "bool": "boolean",
    "time": "timestamptz",
    "json": "jsonb",
    "texts": "text[]",
    "floats": "double precision[]",
}


def metric_columns(name: str) -> tuple[SqlColumn, ...]:
    """A metric's column, or one for each statistic of a distribution, with unit and formula in its meaning."""
    metric = BY_NAME[name]
    meaning = f"{metric.title} [{metric.unit}], {metric.direction} is better: {metric.formula}"
    if metric.direction == "neither":
        meaning = f"{metric.title} [{metric.unit}]: {metric.formula}"
    if not metric.distribution:
        return (SqlColumn(name=name, kind="double precision", meaning=meaning),)
    return distribution_columns(name, meaning)


def distribution_columns(name: str, meaning: str) -> tuple[SqlColumn, ...]:
    """A column for the number of values and one for each statistic; `meaning` is that of the values."""
    count = SqlColumn(name=f"{name}_n", kind="bigint", meaning=f"Number of values in {name}_*")
    return (
        count,
        *(
            SqlColumn(name=f"{name}_{statistic}", kind="double precision", meaning=f"{statistic} of: {meaning}")
            for statistic in STATISTICS
        ),
    )
