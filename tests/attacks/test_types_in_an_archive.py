"""Somebody else's archive has a `requests.parquet` with all the names and other types: a column of lists, of bytes.

Whoever exported it beside his own archives got a traceback and nothing of any of them. Such a file is named, and all
else is read; one with other widths of the same kind is read, as that of another tool is.
"""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tokenpeak.exchange.vllm_bench import REQUEST_SCHEMA
from tokenpeak.loadgen.request_rows import SCHEMA
from tokenpeak.store import request_files

ROWS = 3


def written(path: Path, schema: dict[str, Any], **others: pl.Series) -> Path:
    """A file of requests whose columns have these types, and some others."""
    plain = {"run_index": [0] * ROWS, "request_index": list(range(ROWS)), "phase": ["measured"] * ROWS}
    rows = pl.DataFrame({name: plain.get(name, [None] * ROWS) for name in schema}, schema=schema)
    rows.with_columns(**others).write_parquet(path)
    return path


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("error", pl.Series([b"x"] * ROWS)),
        ("error", pl.Series([["x"]] * ROWS)),
        ("error", pl.Series([{"a": "x"}] * ROWS)),
        ("error", pl.Series(["x"] * ROWS, dtype=pl.Categorical)),
        ("request_index", pl.Series(["0"] * ROWS)),
        ("run_index", pl.Series([[0]] * ROWS)),
        ("status", pl.Series([2**63] * ROWS, dtype=pl.UInt64)),
        ("due_s", pl.Series([0] * ROWS, dtype=pl.Datetime)),
        ("due_s", pl.Series([1] * ROWS, dtype=pl.Decimal(38, 2))),
        ("event_times_us", pl.Series(["x"] * ROWS)),
        ("event_times_us", pl.Series([[["x"]]] * ROWS)),
    ],
    ids=["bytes", "list", "struct", "categories", "text", "lists", "large", "date", "decimal", "no list", "nested"],
)
def test_another_type(column: str, values: pl.Series, tmp_path: Path) -> None:
    """The file is named, with the column and its type."""
    reason = request_files.unreadable(written(tmp_path / "a.parquet", SCHEMA, **{column: values}))

    assert f"holds {column} as " in str(reason)


@pytest.mark.parametrize("others", [{}, {"status": pl.Series([200] * ROWS, dtype=pl.UInt32)}], ids=["same", "wider"])
@pytest.mark.parametrize("first", ["measured", "imported"])
def test_other_widths(others: dict[str, pl.Series], first: str, tmp_path: Path) -> None:
    """Measured requests and another tool's are read together, whichever stand first."""
    files = {
        "measured": written(tmp_path / "a.parquet", SCHEMA, **others),
        "imported": written(tmp_path / "b.parquet", REQUEST_SCHEMA, error=pl.Series([None] * ROWS)),
    }
    both = [("s", name, files[name]) for name in sorted(files, key=lambda name: name != first)]

    assert {None} == {request_files.unreadable(path) for path in files.values()}
    assert [2 * ROWS] == [part.height for part in request_files.parts(both)]
    assert request_files.REQUEST_TYPES.keys() <= request_files.scanned(both).collect_schema().keys()
