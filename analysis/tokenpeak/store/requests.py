"""Requests of an archive: the Parquet files of its trials as one frame, or as several that need little memory each."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from tokenpeak.errors import ArchiveError
from tokenpeak.names import shown
from tokenpeak.store.parquet import REQUEST_TYPES
from tokenpeak.store.tables import REQUESTS

RequestFile = tuple[str, str, Path]
"""sweep_id, trial_id and the file."""
TRIALS_A_PART = 50


def parts(files: Sequence[RequestFile]) -> Iterator[pl.DataFrame]:
    """The requests of the files, those of some trials at a time; ArchiveError where a file has changed meanwhile."""
    for first in range(0, len(files), TRIALS_A_PART):
        some = files[first : first + TRIALS_A_PART]
        try:
            part = scanned(some).collect()
        except pl.exceptions.PolarsError as error:
            where = ", ".join(sorted({str(path.parent) for _, _, path in some}))
            raise ArchiveError(f"The requests in {where} cannot be read ({shown(str(error), 200)}).") from error
        yield part


def scanned(files: Sequence[RequestFile]) -> pl.LazyFrame:
    """All requests with their sweep and trial; the list of event times is the last column."""
    if not files:
        return pl.LazyFrame(schema={**REQUESTS.schema(), "event_times_us": pl.List(pl.Int64)})
    owner = pl.LazyFrame(
        {
            "path": [str(path) for _, _, path in files],
            "sweep_id": [sweep_id for sweep_id, _, _ in files],
            "trial_id": [trial_id for _, trial_id, _ in files],
        }
    )
    rows = pl.scan_parquet(
        [path for _, _, path in files],
        schema=REQUEST_TYPES,
        # Measured ones have narrower types than those that another tool wrote.
        cast_options=pl.ScanCastOptions(integer_cast="upcast", float_cast="upcast"),
        include_file_paths="path",
        extra_columns="ignore",
    )
    # Older searches for the highest rate counted the requests of each probe from 0.
    run = ["path", "run_index", "phase"]
    again = pl.col("request_index").is_duplicated().any().over(run)
    rows = rows.with_columns(
        request_index=pl.when(again).then(pl.int_range(pl.len()).over(run)).otherwise("request_index")
    )
    columns = [pl.col(column.name).cast(column.dtype) for column in REQUESTS.columns]
    return rows.join(owner, on="path", maintain_order="left").select(*columns, "event_times_us")
