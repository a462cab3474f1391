"""An analyst was given an archive, and results of other tools: no GPU, no node, no checkout."""

import csv
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import polars as pl
import pytest
import zstandard
from tests.docs.reader import Reader
from tests.docs.sessions import ARCHIVE, an_archive, others_results
from tests.sim.running_engine import StartEngine

pytestmark = [pytest.mark.e2e]

PAGES = ("how-to/read-an-archive", "how-to/other-tools")


def raw_trials(path: Path) -> Iterator[dict[str, Any]]:
    """The trials of a packed archive, by nothing but zstd, tar and JSON."""
    with zstandard.open(path, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if "trials/" in entry.name and entry.name.endswith(".json"):
                content = archive.extractfile(entry)
                assert content is not None
                yield json.load(content)


def test_walk_with_an_archive(somebody: Reader, start_engine: StartEngine) -> None:
    """Site, tables, Python and Postgres from one file; the figures are those of its raw JSON."""
    an_archive(somebody, start_engine)
    somebody.follow("how-to/read-an-archive")
    by_config: dict[str, list[float]] = {}
    for trial in raw_trials(ARCHIVE):
        first = next(run for run in trial["runs"] if run["level"].get("concurrency") == 256)
        by_config.setdefault(trial["config"]["name"], []).append(first["summary"]["output_tok_per_s"])
    truth = {name: geometric_mean(values) for name, values in by_config.items()}
    tables = somebody.folder / "tables"
    configs = {
        row["config_name"]: row["objective_mean"]
        for row in pl.read_parquet(tables / "configs.parquet").iter_rows(named=True)
        if row["objective_mean"] is not None
    }
    with (tables / "columns.csv").open() as stream:
        described = {(row["table"], row["column"]) for row in csv.DictReader(stream)}

    assert pytest.approx(truth) == configs
    assert set(pl.read_parquet(tables / "runs.parquet").columns) <= {
        name for table, name in described if table == "runs"
    }
    assert "NVIDIA H100" in (somebody.folder / "site" / "index.html").read_text()
    assert (somebody.folder / "site" / "docs" / "index.html").is_file()


def test_walk_with_results_of_other_tools(somebody: Reader, start_engine: StartEngine) -> None:
    """Each tool's file becomes an archive with the tool's own figures; all stand on one site."""
    others_results(somebody, start_engine)
    tool = json.loads((somebody.folder / "vllm-bench.json").read_text())
    somebody.follow("how-to/other-tools")
    [trial] = [json.loads(path.read_text()) for path in somebody.folder.glob("results/from-vllm-bench/trials/*.json")]
    summary = trial["runs"][0]["summary"]
    exported = [json.loads(path.read_text()) for path in somebody.folder.glob("exported/**/*.json")]

    assert pytest.approx(tool["output_throughput"]) == summary["output_tok_per_s"]
    assert pytest.approx(tool["p99_ttft_ms"] / 1000) == summary["ttft_s"]["p99"]
    assert [pytest.approx(tool["output_throughput"])] == [each["output_throughput"] for each in exported]
    for name in ("from-vllm-bench", "from-guidellm", "from-aiperf", "my-old-benchmark"):
        assert (somebody.folder / "site" / "build" / name / "index.html").is_file()
