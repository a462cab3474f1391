"""Our runs for others: the `vllm bench serve` schema, and CSV and Parquet tables with a line for each column."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import spreadsheet
from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.foreign import STATISTIC_OF
from tokenpeak.exchange.vllm_bench import TIMES
from tokenpeak.files import replacing, write_atomically
from tokenpeak.paths import inside
from tokenpeak.records import REQUEST_COLUMNS, Distribution, RunRecord, RunSummary, TrialRecord
from tokenpeak.spec.load import ClosedLoad, ExternalLoad, OpenLoad
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.store.decisions import with_decisions
from tokenpeak.store.frames import (
    LATENCIES,
    VALUE,
    VALUE_MEANING,
    Frames,
    axes_of,
    for_analysis,
    open_frames,
    with_latencies,
)
from tokenpeak.store.request_files import unreadable
from tokenpeak.store.tables import EXPORTED, REQUESTS

NOT_KEPT = ("max_concurrent_requests", "rtfx", "generated_texts")
"""Keys of that tool without a value of ours: requests that touched its fullest second, of audio, and answers."""


def vllm_bench_result(trial: TrialRecord, run: RunRecord, requests: pl.DataFrame | None) -> dict[str, Any]:
    """A run as `vllm bench serve --save-result` would have written it, with lists when its requests are given.

    Percentiles are those that we keep. What that schema has no key for (verdict, energy, engine counters) is left to
    the tables; what it has and we do not keep is NOT_KEPT.
    """
    summary, level = run.summary, run.level
    cap = level.concurrency if isinstance(level, ClosedLoad | ExternalLoad) else getattr(level, "max_concurrency", None)
    result: dict[str, Any] = {
        "date": f"{run.started_at:%Y%m%d-%H%M%S}",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": trial.config.name,
        "model_id": trial.config.model.name,
        "tokenizer_id": trial.config.model.name,
        "num_prompts": summary.requests_sent,
        "request_rate": (level.rate_per_s if isinstance(level, OpenLoad | ExternalLoad) else None) or "inf",
        "burstiness": getattr(level, "burstiness", 1.0),
        "max_concurrency": cap,
        "duration": summary.duration_s,
        "completed": summary.requests_ok,
        "failed": summary.requests_failed,
        "total_input_tokens": summary.input_tokens,
        "total_output_tokens": summary.output_tokens,
        "request_throughput": _over_all(summary, summary.request_per_s),
        "request_goodput": _over_all(summary, summary.goodput_request_per_s),
        "output_throughput": _over_all(summary, summary.output_tok_per_s),
        "total_token_throughput": _over_all(summary, summary.total_tok_per_s),
        "max_output_tokens_per_s": summary.peak_output_tok_per_s,
    }
    for theirs, ours in TIMES.items():
        distribution: Distribution = getattr(summary, ours)
        for word, statistic in STATISTIC_OF.items():
            value = getattr(distribution, statistic)
            if value is not None:
                result[f"{word}_{theirs}_ms"] = value * 1000
    if requests is not None and requests.height:
        result |= _lists(requests, run.started_at.timestamp())
    return result


def _over_all(summary: RunSummary, rate: float | None) -> float | None:
    """A rate over the whole load, as that tool states it; ours are over a closed loop's steady window."""
    if rate is None or summary.steady_waves is None or not (summary.output_tok_per_s and summary.duration_s):
        return rate
    return rate * (summary.output_tokens or 0) / summary.duration_s / summary.output_tok_per_s


def _lists(requests: pl.DataFrame, started_unix_s: float) -> dict[str, Any]:
    """The lists of a detailed result, from the measured requests in the order in which they were due.

    Times count from when a request was due, as our figures do; `queue_times` has what each then waited in the client.
    """
    rows = requests.filter(pl.col("phase") == "measured").sort("request_index")
    rows = rows.with_columns(pl.coalesce("due_s", "sent_s").alias("due_s"))
    return {
        "input_lens": rows["input_tokens"].fill_null(0).to_list(),
        "output_lens": rows["output_tokens"].fill_null(0).to_list(),
        "ttfts": (rows["first_token_s"] - rows["due_s"]).fill_null(0.0).to_list(),
        "itls": [[gap / 1e6 for gap in gaps or []] for gaps in rows["event_times_us"].to_list()],
        "latencies": (rows["last_token_s"] - rows["due_s"]).fill_null(0.0).to_list(),
        "start_times": (rows["due_s"] + started_unix_s).fill_null(0.0).to_list(),
        "queue_times": (rows["sent_s"] - rows["due_s"]).fill_null(0.0).to_list(),
        "errors": [error or "" for error in rows["error"].to_list()],
    }


def export_vllm_bench(archive: Archive, folder: Path, *, detailed: bool = False) -> list[Path]:
    """A JSON file for each run of an archive, named after its trial and order."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for trial in archive.judged_trials():
        parquet = archive.requests_path(trial.trial_id)
        is_there = detailed and parquet.is_file()
        if is_there and (reason := unreadable(parquet)):
            raise ArchiveError(f"{parquet}: {reason}. Move it away to write the runs without their requests.")
        requests = pl.read_parquet(parquet) if is_there else None
        for run in trial.runs:
            own = requests.filter(pl.col("run_index") == run.run_index) if requests is not None else None
            path = inside(folder, f"{trial.trial_id}-{run.run_index}.json")
            write_atomically(path, json.dumps(vllm_bench_result(trial, run, own)), durable=False)
            written.append(path)
    return written


def export_tables(given: Frames, folder: Path, form: str) -> list[Path]:
    """Each table as csv, parquet or hive, and columns.csv: table, column, kind and meaning of each.

    hive: Parquet with a folder for each sweep, `runs/sweep_id=ID/runs.parquet`, and of requests for each trial,
    `requests/sweep_id=ID/trial_id=ID/requests.parquet`, which DuckDB, Spark and Polars read as one table with these
    columns.
    """
    frames = for_analysis(with_decisions(given))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in EXPORTED:
        if form == "hive" and table is REQUESTS:
            written += _write_requests(frames, folder)
            continue
        frame: pl.DataFrame | pl.LazyFrame = getattr(frames, table.name)
        whole = frame.collect() if isinstance(frame, pl.LazyFrame) else frame
        if form == "hive":
            written += _write_partitions(whole, table.name, folder, "sweep_id")
            continue
        path = folder / f"{table.name}.{form}"
        if form == "parquet":
            _write_parquet(whole, path)
        else:
            spreadsheet.write_frame(whole, path)
        written.append(path)
    columns = folder / "columns.csv"
    spreadsheet.write_rows(columns, [("table", "column", "kind", "meaning"), *_columns(frames)])
    return [*written, columns]


def _write_requests(frames: Frames, folder: Path) -> list[Path]:
    """The requests of each trial in a file of their own; memory holds those of a few trials."""
    written = []
    for sweep_id in frames.sweeps["sweep_id"]:
        for part in frames.request_parts(sweep_id):
            rows = with_latencies(part.lazy(), frames.runs).collect()
            written += _write_partitions(rows, REQUESTS.name, folder, "sweep_id", "trial_id")
    return written


def _write_partitions(frame: pl.DataFrame, name: str, folder: Path, *keys: str) -> list[Path]:
    """The rows of each value of the keys in a Parquet file of folders that are named after it."""
    written = []
    for values, rows in frame.partition_by(*keys, as_dict=True, maintain_order=True).items():
        place = "/".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))
        path = inside(folder / name, place) / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_parquet(rows.drop(*keys), path)
        written.append(path)
    return written


def _write_parquet(frame: pl.DataFrame, path: Path) -> None:
    with replacing(path, durable=False) as part:
        frame.write_parquet(part)


def _columns(frames: Frames) -> Sequence[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = [
        (table.name, column.name, column.kind, column.meaning) for table in EXPORTED for column in table.columns
    ]
    for table in ("configs", "trials", "runs"):
        kinds = getattr(frames, table).schema
        for axis in axes_of(frames):
            kind = _KINDS[kinds[f"{VALUE}{axis}"]]
            rows.append((table, f"axis_{axis}", "text", f"The alternative of axis {axis}"))
            rows.append((table, f"{VALUE}{axis}", kind, VALUE_MEANING.format(axis)))
    rows += [(REQUESTS.name, name, "double precision", meaning) for name, meaning in LATENCIES.items()]
    rows.append((REQUESTS.name, "event_times_us", "bigint[]", REQUEST_COLUMNS["event_times_us"].meaning))
    return rows


_KINDS = {pl.Int64(): "bigint", pl.Float64(): "double precision", pl.Boolean(): "boolean", pl.String(): "text"}


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A form in which archives are written for others: its words, and its writer, which returns the files."""

    meaning: str
    write: Callable[[Sequence[Path], Path], list[Path]]


def _tables(form: str, paths: Sequence[Path], folder: Path) -> list[Path]:
    return export_tables(open_frames(paths), folder, form)


def _results(paths: Sequence[Path], folder: Path, *, detailed: bool) -> list[Path]:
    """A folder of results for each archive."""
    return [
        path
        for archive in find_archives(list(paths))
        for path in export_vllm_bench(archive, inside(folder, archive.read_sweep().sweep_id), detailed=detailed)
    ]


EXPORTS = {
    "vllm-bench": ExportFormat(
        meaning="JSON of each run as vllm bench serve saves it", write=partial(_results, detailed=False)
    ),
    "vllm-bench-detailed": ExportFormat(meaning="the same with each request", write=partial(_results, detailed=True)),
    "csv": ExportFormat(meaning="a table in each file", write=partial(_tables, "csv")),
    "parquet": ExportFormat(meaning="the same with types", write=partial(_tables, "parquet")),
    "hive": ExportFormat(meaning="Parquet in folders by sweep and trial", write=partial(_tables, "hive")),
}
"""Every form by its name, for `tokenpeak export --format`."""
