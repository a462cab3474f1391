"""Columns and tables: name, kind and meaning of a column in frames and in the database, and rows of records."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Literal

import polars as pl
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from tokenpeak.metrics import STATISTICS, Metric
from tokenpeak.records import Distribution, Gpu, Production, Restoration
from tokenpeak.records.base import Record

Row = dict[str, object]
"""Column → value."""

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


@dataclass(frozen=True)
class SqlColumn:
    """A column. A `jsonb` one is canonical JSON text in frames."""

    kind: Kind
    name: str
    meaning: str

    @property
    def dtype(self) -> pl.DataType:
        """Its type in frames."""
        return _DTYPES[self.kind]

    def stored(self, value: object) -> object:
        """A value as frames hold it."""
        if self.kind == "jsonb" and value is not None:
            return canonical_json(value)
        return list(value or ()) if self.kind.endswith("[]") else value  # type: ignore[call-overload]


@dataclass(frozen=True, kw_only=True)
class SqlTable:
    """A table: what a row is, its key and its columns, in order."""

    name: str
    row_is: str
    key: tuple[str, ...]
    columns: tuple[SqlColumn, ...]
    is_bulk: bool = False
    """It has so many rows that checking keys takes longer than writing them. A sweep's rows are replaced whole, by one
    process at a time, and whoever removes a sweep deletes them too."""

    def schema(self) -> dict[str, pl.DataType]:
        """Column → type, as frames have it."""
        return {column.name: column.dtype for column in self.columns}

    def row(self, values: Mapping[str, object]) -> Row:
        """The row of these values by column name, as frames have it; a column that has none is null."""
        return {column.name: column.stored(values.get(column.name)) for column in self.columns}


def flat(record: Record | Gpu | Production | Restoration | None, prefix: str = "") -> Row:
    """The fields of a record by column name, `prefix` before each; those of a distribution as `NAME_n`, `NAME_mean`."""
    values: Row = {}
    for name, value in (record or ()) if isinstance(record, Record | None) else vars(record).items():
        if isinstance(value, Distribution):
            values |= {f"{prefix}{name}_{statistic}": each for statistic, each in value}
        else:
            values[f"{prefix}{name}"] = value
    return values


def canonical_json(value: object) -> str:
    """JSON text that is equal whenever the values are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    is_record = isinstance(value, BaseModel) or is_dataclass(value)
    return to_jsonable_python(value) if is_record else str(value)


text = partial(SqlColumn, "text")
integer = partial(SqlColumn, "bigint")
number = partial(SqlColumn, "double precision")
boolean = partial(SqlColumn, "boolean")
moment = partial(SqlColumn, "timestamptz")
document = partial(SqlColumn, "jsonb")
texts = partial(SqlColumn, "text[]")
numbers = partial(SqlColumn, "double precision[]")


def metric_columns(metric: Metric) -> tuple[SqlColumn, ...]:
    """A metric's column, or one for each statistic of a distribution, with unit and formula in its meaning."""
    better = "" if metric.direction == "neither" else f", {metric.direction} is better"
    meaning = f"{metric.title} [{metric.unit}]{better}: {metric.formula}"
    return distribution_columns(metric.name, meaning) if metric.distribution else (number(metric.name, meaning),)


def distribution_columns(name: str, meaning: str) -> tuple[SqlColumn, ...]:
    """A column for the number of values and one for each statistic; `meaning` is that of the values."""
    statistics = (number(f"{name}_{statistic}", f"{statistic} of: {meaning}") for statistic in STATISTICS)
    return (integer(f"{name}_n", f"Number of values in {name}_*"), *statistics)
