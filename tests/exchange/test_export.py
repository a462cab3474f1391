"""What is exported is what was measured, and can be read again."""

import csv
import json
import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from archive_factory import make_archive
from tokenpeak.exchange.assemble import write_import
from tokenpeak.exchange.export import NOT_KEPT, export_tables, export_vllm_bench
from tokenpeak.exchange.sources import read_sources
from tokenpeak.exchange.vllm_bench import read_vllm_bench
from tokenpeak.store.archive import Archive
from tokenpeak.store.frames import open_frames
from tokenpeak.store.tables import EXPORTED

FIXTURES = Path(__file__).parent / "fixtures"
FIGURES = (
    "output_tok_per_s",
    "request_per_s",
    "duration_s",
    "ttft_s_p99",
    "tpot_s_mean",
    "itl_s_p50",
    "latency_s_mean",
)


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


@pytest.mark.parametrize("name", ["vllm-plain", "vllm-detailed"])
def test_an_export_has_the_keys_of_the_real_tool(archive: Archive, name: str, tmp_path: Path) -> None:
    """Its keys are those of a file that the tool wrote, with values of the same kind; what we do not keep is named."""
    real = json.loads((FIXTURES / f"{name}.json").read_text())
    if name == "vllm-plain":
        # Release 0.32 forgets to take these two lists out of a plain result.
        real = {key: value for key, value in real.items() if key not in ("latencies", "queue_times")}
    ours = json.loads(export_vllm_bench(archive, tmp_path, detailed=name == "vllm-detailed")[0].read_text())

    assert set(NOT_KEPT) >= real.keys() - ours.keys()
    assert {f"{part}_{metric}_ms" for part in ("p25", "p75") for metric in ("ttft", "tpot", "itl", "e2el")} == (
        ours.keys() - real.keys()
    )
    numbers = {key for key, value in real.items() if isinstance(value, int | float)}
    assert {} == {
        key: ours[key] for key in numbers & ours.keys() if not isinstance(ours[key], int | float | str | None)
    }
    assert {key for key, value in real.items() if isinstance(value, list)} - {"generated_texts"} == {
        key for key, value in ours.items() if isinstance(value, list)
    }


def test_lists_of_a_detailed_export_are_the_requests_of_its_figures(archive: Archive, tmp_path: Path) -> None:
    """Each list has an entry for each request, and their means are the figures beside them."""
    result = json.loads(export_vllm_bench(archive, tmp_path, detailed=True)[0].read_text())
    lists = {key: value for key, value in result.items() if isinstance(value, list)}

    assert {30} == {len(values) for values in lists.values()}
    assert result["total_output_tokens"] == sum(lists["output_lens"])
    assert result["mean_ttft_ms"] == pytest.approx(sum(lists["ttfts"]) / 30 * 1000)
    assert result["mean_e2el_ms"] == pytest.approx(sum(lists["latencies"]) / 30 * 1000)


def test_exported_results_are_an_archive_again(archive: Archive, tmp_path: Path) -> None:
    """The folder of results, imported, has each run's figures under its config's name."""
    export_vllm_bench(archive, tmp_path / "results")
    found, _ = read_sources([tmp_path / "results"])
    again = open_frames(write_import(found, tmp_path, sweep_id="again").path).runs
    keys = ["config_name", *FIGURES]

    assert_frame_equal(open_frames(archive.path).runs.select(keys).sort(keys), again.select(keys).sort(keys))


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


def test_partitions_are_one_table_to_duckdb(archive: Archive, tmp_path: Path) -> None:
    """DuckDB reads the folders of two sweeps as one table with their ids, and computes what the raw JSON says."""
    make_archive(tmp_path / "both" / "other", axes={"max_num_seqs": [16]}, gpus=["NVIDIA L4"], seconds=3, seed=2)
    shutil.copytree(archive.path, tmp_path / "both" / archive.path.name)
    export_tables(open_frames(tmp_path / "both"), tmp_path / "out", "hive")
    query = (
        "SELECT sweep_id, count(*), max(output_tok_per_s), sum(value_max_num_seqs) "
        f"FROM read_parquet('{tmp_path}/out/runs/*/*.parquet', hive_partitioning = true) GROUP BY ALL ORDER BY ALL"
    )
    found = duckdb.connect().execute(query).fetchall()
    truth = []
    for path in sorted((tmp_path / "both").iterdir()):
        trials = [json.loads(file.read_text()) for file in (path / "trials").glob("*.json")]
        runs = [(trial["config"]["flags"]["max_num_seqs"], run) for trial in trials for run in trial["runs"]]
        fastest = max(run["summary"]["output_tok_per_s"] for _, run in runs)
        sweep = json.loads((path / "sweep.json").read_text())
        truth.append((sweep["sweep_id"], len(runs), fastest, sum(seats for seats, _ in runs)))

    assert sorted(truth) == found


@pytest.mark.parametrize("reader", ["duckdb", "polars"])
def test_requests_are_one_table_by_sweep_and_trial(archive: Archive, reader: str, tmp_path: Path) -> None:
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
    if reader == "duckdb":
        rows = connection.execute(
            "SELECT sweep_id, trial_id, count(*), count(error), sum(output_tokens), max(last_token_s) FROM "
            f"read_parquet('{tmp_path}/out/requests/**/*.parquet', hive_partitioning = true) GROUP BY ALL"
        ).fetchall()
    else:
        frame = pl.scan_parquet(tmp_path / "out" / "requests", hive_partitioning=True)
        rows = (
            frame.group_by("sweep_id", "trial_id")
            .agg(pl.len(), pl.col("error").count(), pl.col("output_tokens").sum(), pl.col("last_token_s").max())
            .collect()
            .rows()
        )

    assert truth == {(sweep_id, trial_id): tuple(figures) for sweep_id, trial_id, *figures in rows}


def test_a_table_is_an_archive_again(archive: Archive, tmp_path: Path) -> None:
    """The runs' CSV, imported by a mapping of its columns, has each run's figures, axes and load."""
    export_tables(open_frames(archive.path), tmp_path, "csv")
    cells = {name: {"column": name} for name in FIGURES}
    mapping = {
        "id": "again",
        "name": "again",
        "nodes": {"node-1": {"gpu": "NVIDIA L4"}},
        "tables": [
            {
                "file": "runs.csv",
                "node": {"column": "node"},
                "config": {"column": "config_name"},
                "axes": {"max_num_seqs": {"column": "axis_max_num_seqs"}},
                "workload": {"name": {"column": "workload_name"}},
                "level": {"concurrency": {"column": "concurrency"}, "rate_per_s": {"column": "rate_per_s"}},
                "fields": cells,
            }
        ],
    }
    (tmp_path / "mapping.yml").write_text(yaml.safe_dump(mapping))
    found, own = read_sources([tmp_path / "mapping.yml"])
    again = open_frames(write_import(found, tmp_path, sweep_id=own).path).runs
    keys = ["config_name", "workload_name", "axis_max_num_seqs", *FIGURES]

    assert_frame_equal(open_frames(archive.path).runs.select(keys).sort(keys), again.select(keys).sort(keys))
