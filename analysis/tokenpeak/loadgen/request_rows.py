"""Request table: a row for each request of a run, also as Parquet. Columns are those of `records.REQUEST_COLUMNS`."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl

from tokenpeak.atomic import replacing
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.records import REQUEST_COLUMNS

SCHEMA: dict[str, pl.DataType] = {
    "run_index": pl.Int32(),
    "request_index": pl.Int64(),
    "phase": pl.String(),
    "turn": pl.Int32(),
    "due_s": pl.Float64(),
    "sent_s": pl.Float64(),
    "first_byte_s": pl.Float64(),
    "first_token_s": pl.Float64(),
    "last_token_s": pl.Float64(),
    "input_tokens": pl.Int64(),
    "cached_tokens": pl.Int64(),
    "output_tokens": pl.Int64(),
    "events": pl.Int32(),
    "event_times_us": pl.List(pl.Int32()),
    "status": pl.Int32(),
    "error": pl.String(),
}

assert list(SCHEMA) == list(REQUEST_COLUMNS)


def table(replies: Iterable[Reply], run_index: int, warmup_requests: int) -> pl.DataFrame:
    """One row per request, in order of its index; the first `warmup_requests` are of phase `warmup`."""
    replies = sorted(replies, key=lambda reply: reply.index)
    plain = [name for name in SCHEMA if name not in ("run_index", "request_index", "phase", "event_times_us")]
    columns: dict[str, object] = {
        "run_index": [run_index] * len(replies),
        "request_index": [reply.index for reply in replies],
        "phase": ["warmup" if reply.index < warmup_requests else "measured" for reply in replies],
        "event_times_us": [np.frombuffer(reply.event_times_us, dtype=np.int32) for reply in replies],
    }
    columns |= {name: [getattr(reply, name) for reply in replies] for name in plain}
    return pl.DataFrame({name: columns[name] for name in SCHEMA}, schema=SCHEMA)


def write(path: Path, tables: list[pl.DataFrame]) -> None:
    """All runs' requests in one compressed file, written whole or not at all."""
    everything = pl.concat(tables) if tables else pl.DataFrame(schema=SCHEMA)
    with replacing(path) as part:
        everything.write_parquet(part, compression="zstd", compression_level=9)
