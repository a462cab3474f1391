"""What is exported is what was measured, and can be read again."""

import csv
import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak.cli.archive import export
from tokenpeak.exchange.export import export_tables, export_vllm_bench
from tokenpeak.exchange.vllm_bench import read_vllm_bench
from tokenpeak.store.archive import Archive
from tokenpeak.store.frames import open_frames
from tokenpeak.store.tables import EXPORTED


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
            assert own.mean == pytest.approx(other.mean)
            assert own.p50 == pytest.approx(other.p50)
            assert own.p95 == pytest.approx(other.p95)
            assert own.p99 == pytest.approx(other.p99)
        if found.requests is not None:
            assert ours.requests_sent == found.requests.height


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_come_with_the_meaning_of_their_columns(archive: Archive, ending: str, tmp_path: Path) -> None:
    """Every table is there, and every column of it is in columns.csv."""
    export_tables(open_frames(archive.path), tmp_path, ending)
    with (tmp_path / "columns.csv").open(newline="") as file:
        described = {(row["table"], row["column"]): row["meaning"] for row in csv.DictReader(file)}

    for table in EXPORTED:
        path = tmp_path / f"{table.name}.{ending}"
        frame = pl.read_parquet(path) if ending == "parquet" else pl.read_csv(path)
        assert all(described[table.name, column] for column in frame.columns)
    runs = pl.read_parquet(tmp_path / "runs.parquet") if ending == "parquet" else pl.read_csv(tmp_path / "runs.csv")
    assert 8 == runs.height


def test_requests_are_one_table_by_sweep_and_trial(archive: Archive, tmp_path: Path) -> None:
    """Each trial's requests are a file in the folders of its sweep and itself, and a reader without our code sees that.

    The truth is DuckDB's, of the archive's own Parquet files.
    """
    make_archive(tmp_path / "both" / "other", axes={"max_num_seqs": [16]}, gpus=["NVIDIA L4"], seconds=3, seed=2)
    shutil.copytree(archive.path, tmp_path / "both" / archive.path.name)
    export_tables(open_frames(tmp_path / "both"), tmp_path / "out", "hive")
    connection = duckdb.connect()
    truth = {}
    for path in sorted((tmp_path / "both").glob("*/trials/*.requests.parquet")):
        query = f"SELECT count(*), count(error), sum(output_tokens), max(last_token_s) FROM read_parquet('{path}')"
        truth[path.parents[1].name, path.name.partition(".")[0]] = connection.execute(query).fetchone()
    rows = connection.execute(
        "SELECT sweep_id, trial_id, count(*), count(error), sum(output_tokens), max(last_token_s) FROM "
        f"read_parquet('{tmp_path}/out/requests/**/*.parquet', hive_partitioning = true) GROUP BY ALL"
    ).fetchall()

    assert truth == {(sweep_id, trial_id): tuple(figures) for sweep_id, trial_id, *figures in rows}


@pytest.mark.parametrize("options", [[], ["--keep-everything"]])
def test_a_broken_archive_is_left_out(archive: Archive, options: list[str], tmp_path: Path) -> None:
    """It is named; what lies beside it is exported, and where nothing does, the command ends with an error."""
    results, alone = tmp_path / "results", tmp_path / "alone"
    shutil.copytree(archive.path, results / "small")
    for folder in (results / "broken", alone / "broken", results / "linked"):
        folder.mkdir(parents=True)
        (folder / "sweep.json").write_text("{")
    (results / "linked" / "sweep.json").unlink()
    (results / "linked" / "sweep.json").symlink_to(archive.path / "sweep.json")
    written = CliRunner().invoke(export, [str(results), "--output", str(tmp_path / "out"), *options])
    refused = CliRunner().invoke(export, [str(alone), "--output", str(tmp_path / "none"), *options])

    assert 0 == written.exit_code, written.output
    assert {"broken", "linked"} == {line.split()[1] for line in written.output.splitlines() if "left out" in line}
    assert 2 == pl.read_csv(tmp_path / "out" / "trials.csv").height
    assert "nothing was written" in str(refused.exception)
