"""A Parquet file of requests that would fill the memory is named and left out before it is decoded."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak.cli.archive import export
from tokenpeak.store.archive import Archive
from tokenpeak.store.frames import open_frames


def one_row_of_many_times(rows: pl.DataFrame) -> pl.DataFrame:
    """A request that got six million tokens."""
    times = pl.Series("event_times_us", [[0] * 6_000_000], dtype=pl.List(pl.Int32))
    return rows.head(1).with_columns(times)


def many_rows_of_some_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Sixty thousand requests of a hundred tokens at one instant."""
    times = pl.Series("event_times_us", [[7] * 100], dtype=pl.List(pl.Int32))
    return pl.concat([rows.head(1).with_columns(times)] * 60_000)


def long_texts(rows: pl.DataFrame) -> pl.DataFrame:
    """A long text that stands in the file once and in a hundred thousand rows."""
    return pl.concat([rows.head(1)] * 100_000).with_columns(pl.lit("x" * 10_000).alias("error"))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A small archive with requests."""
    return make_archive(tmp_path / "small", axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=1, requests=4)


def parquet_of(archive: Archive) -> Path:
    """The requests of its first trial."""
    return min((archive.path / "trials").glob("*.parquet"))


@pytest.mark.integration
@pytest.mark.parametrize("change", [one_row_of_many_times, many_rows_of_some_times, long_texts])
def test_requests_that_expand_are_left_out(
    change: Callable[[pl.DataFrame], pl.DataFrame], archive: Archive, tmp_path: Path
) -> None:
    """A file of some kilobytes that holds many megabytes is said by name, and no reader decodes it."""
    path = parquet_of(archive)
    change(pl.read_parquet(path)).write_parquet(path, compression="zstd")
    assert path.stat().st_size < 1 << 18

    (found,) = open_frames(archive.path).malformed
    assert path == found.path
    assert "which no trial's requests have" in found.reason
    ended = CliRunner().invoke(
        export, [str(archive.path), "--format", "vllm-bench-detailed", "--keep-everything", "--output", str(tmp_path)]
    )
    assert "which no trial's requests have" in str(ended.exception)
