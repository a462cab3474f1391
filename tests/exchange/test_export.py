"""What is exported is what was measured, and can be read again."""

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive
from tokenpeak.exchange.export import export_tables, export_vllm_bench
from tokenpeak.exchange.vllm_bench import read_vllm_bench
from tokenpeak.store.frames import open_frames
from tokenpeak.store.raw import Archive
from tokenpeak.store.tables import TABLES


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """A small archive with requests."""
    path = tmp_path_factory.mktemp("exported") / "small"
    return make_archive(path, axes={"max_num_seqs": [8, 64]}, gpus=["NVIDIA L4"], seconds=3, requests=30)


@pytest.mark.parametrize("detailed", [False, True])
def test_runs_survive_the_schema_of_vllm_bench(archive: Archive, detailed: bool, tmp_path: Path) -> None:
    """Exported and imported again, a run has the same counts, throughputs, latencies and requests."""
    written = export_vllm_bench(archive, tmp_path, detailed=detailed)
    runs = [run for trial in archive.trials() for run in trial.runs]

    assert len(runs) == len(written)
    for run, path in zip(runs, written, strict=True):
        (found,), unread = read_vllm_bench(path)
        assert [] == unread
        assert (detailed and found.requests is not None) or (not detailed and found.requests is None)
        ours, theirs = run.summary, found.summary
        for name in ("requests_sent", "requests_ok", "requests_failed", "input_tokens", "output_tokens"):
            assert getattr(ours, name) == getattr(theirs, name)
        for name in ("duration_s", "request_per_s", "output_tok_per_s", "total_tok_per_s", "peak_output_tok_per_s"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name))
        for name in ("ttft_s", "tpot_s", "itl_s", "latency_s"):
            own, other = getattr(ours, name), getattr(theirs, name)
            assert (own.mean, own.p50, own.p95, own.p99) == pytest.approx((other.mean, other.p50, other.p95, other.p99))
        if found.requests is not None:
            assert ours.requests_sent == found.requests.height


def test_a_detailed_export_has_vllm_benchs_keys(archive: Archive, tmp_path: Path) -> None:
    """Each list has an entry for each request, and the keys are those that the tool writes."""
    result = json.loads(export_vllm_bench(archive, tmp_path, detailed=True)[0].read_text())

    assert {"date", "backend", "model_id", "num_prompts", "request_rate", "max_concurrency", "duration"} <= set(result)
    assert {30} == {len(result[name]) for name in ("input_lens", "output_lens", "ttfts", "itls", "errors")}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_come_with_the_meaning_of_their_columns(archive: Archive, ending: str, tmp_path: Path) -> None:
    """Every table is there, and every column of it is in columns.csv."""
    export_tables(open_frames(archive.path), tmp_path, ending)
    with (tmp_path / "columns.csv").open(newline="") as file:
        described = {(row["table"], row["column"]): row["meaning"] for row in csv.DictReader(file)}

    for table in TABLES:
        path = tmp_path / f"{table.name}.{ending}"
        frame = pl.read_parquet(path) if ending == "parquet" else pl.read_csv(path)
        assert all(described[table.name, column] for column in frame.columns)
    runs = pl.read_parquet(tmp_path / "runs.parquet") if ending == "parquet" else pl.read_csv(tmp_path / "runs.csv")
    assert 8 == runs.height
