"""A reader's tasks: a page's notebook, changed in at most five lines, answers a new question."""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report.site.notebook_runner import execute
from tokenpeak.store.pack import unpacked

ARCHIVE = paths.ROOT / "analysis" / "landscapes" / "search-cpu.tar.zst"
H100 = ARCHIVE.with_name("search-h100.tar.zst")
ESTIMATED_AGAIN = 0.002
"""That archive's energies were recorded without an interval: they are estimated again from its readings."""
MOST_LINES = 5


def answer(
    page: str, changes: dict[str, str], frame: str, folder: Path, archive: Path = ARCHIVE
) -> list[dict[str, Any]]:
    """The rows of a frame of the page's notebook, in which these parts of lines were replaced."""
    notebook = nbformat.read(paths.NOTEBOOKS / f"{page}.ipynb", as_version=4)
    for old, new in changes.items():
        (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source]
        cell.source = cell.source.replace(old, new)
    assert sum(new.count("\n") + 1 for new in changes.values()) <= MOST_LINES
    notebook.cells.append(nbformat.v4.new_code_cell(f"{frame}.write_json('answer.json')"))
    nbformat.write(notebook, folder / f"{page}.ipynb")
    execute(folder / f"{page}.ipynb", folder / "executed.ipynb", {"archive": str(archive)})
    return json.loads((folder / "answer.json").read_text())


def launches(metric: str, statistic: str = "") -> dict[str, list[float]]:
    """A metric of each launch, by config, from raw JSON."""
    found: dict[str, list[float]] = {}
    for path in sorted((unpacked(ARCHIVE) / "trials").glob("*.json")):
        trial = json.loads(path.read_bytes())
        value = trial["runs"][0]["summary"][metric]
        found.setdefault(trial["config"]["config_id"], []).append(value[statistic] if statistic else value)
    return found


def test_which_config_has_the_shortest_wait(tmp_path: Path) -> None:
    """The ranking by another objective: one changed line."""
    changes = {'objective: str = ""': 'objective: str = "ttft_s_p95"'}
    rows = answer("ranking", changes, "ranked[0].frame.select('config_id', 'objective')", tmp_path)
    means = {
        config: math.exp(statistics.fmean(map(math.log, each))) for config, each in launches("ttft_s", "p95").items()
    }
    best = min(means, key=lambda config: means[config])

    assert (best, round(means[best], 6)) == (rows[0]["config_id"], round(rows[0]["objective"], 6))


def energies() -> list[tuple[float, float]]:
    """Power and joules per output token of each launch on the H100 with 256 users, from raw JSON."""
    runs = [
        run
        for path in sorted((unpacked(H100) / "trials").glob("*.json"))
        for run in json.loads(path.read_bytes())["runs"]
        if run["level"]["concurrency"] == 256
    ]
    return [(run["energy"]["power_w"], run["energy"]["energy_j_per_output_tok"]) for run in runs]


def test_what_a_thriftier_data_centre_would_take(tmp_path: Path) -> None:
    """Energy of a million tokens at a PUE of 1.1: one changed line."""
    changes = {"pue: float = None": "pue: float = 1.1"}
    rows = answer("energy", changes, "per_config", tmp_path, H100)

    least = min(joules for _, joules in energies()) / 3.6 * 1.1
    assert pytest.approx(least, rel=ESTIMATED_AGAIN) == rows[0]["energy_kwh_per_1m_output_tok"]


def h100_runs() -> list[tuple[str, str, dict[str, Any]]]:
    """Config, load level and summary of each run on the H100, from raw JSON."""
    return [
        (trial["config"]["config_id"], json.dumps(run["level"]), run["summary"])
        for trial in (json.loads(path.read_bytes()) for path in sorted((unpacked(H100) / "trials").glob("*.json")))
        for run in trial["runs"]
    ]


def test_how_long_users_wait_at_each_load(tmp_path: Path) -> None:
    """TTFT beside throughput instead of a user's speed: one changed line."""
    changes = {'user=pl.col("request_output_tok_per_s_p50")': 'user=pl.col("ttft_s_p95")'}
    rows = answer("load", changes, "speeds", tmp_path, H100)

    assert sorted(round(summary["ttft_s"]["p95"], 6) for *_, summary in h100_runs()) == sorted(
        round(row["user"], 6) for row in rows
    )


def means_by_alternative(metric: str, statistic: str, mean: Callable[[list[float]], float]) -> list[float]:
    """A metric of all launches with each alternative of each axis, from raw JSON."""
    found: dict[tuple[str, str], list[float]] = {}
    for path in sorted((unpacked(ARCHIVE) / "trials").glob("*.json")):
        trial = json.loads(path.read_bytes())
        value = trial["runs"][0]["summary"][metric]
        for axis, alternative in trial["config"]["choices"].items():
            found.setdefault((axis, str(alternative)), []).append(value[statistic] if statistic else value)
    return sorted(round(mean(each), 6) for each in found.values())


def test_which_alternative_shortens_the_wait(tmp_path: Path) -> None:
    """Effects on another metric: one changed line."""
    changes = {'objective: str = ""': 'objective: str = "ttft_s_p95"'}
    rows = answer("interactions", changes, "pl.concat(first_look).drop_nulls('alternative')", tmp_path)

    assert means_by_alternative(
        "ttft_s", "p95", lambda each: math.exp(statistics.fmean(map(math.log, each)))
    ) == sorted(round(row["mean"], 6) for row in rows)


def test_what_an_alternative_gives_over_the_first(tmp_path: Path) -> None:
    """Speedups of matched pairs of configs, without a changed line: from the first launches' raw JSON."""
    axes = {"max_num_seqs": [16, 64], "max_num_batched_tokens": [2048, 8192]}
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes=axes, seconds=2).path
    rows = answer("hardware", {}, "pl.concat(matched)", tmp_path, archive)
    trials = [json.loads(path.read_bytes()) for path in (archive / "trials").glob("*.json")]
    value = {
        tuple(trial["config"]["choices"].values()): trial["runs"][0]["summary"]["output_tok_per_s"]
        for trial in trials
        if trial["runs"]
    }
    expected = {
        "64": [value["64", tokens] / value["16", tokens] for tokens in ("2048", "8192")],
        "8192": [value[seqs, "8192"] / value[seqs, "2048"] for seqs in ("16", "64")],
    }

    assert {name: round(math.sqrt(first * last), 9) for name, (first, last) in expected.items()} == {
        row["alternative"]: round(row["speedup"], 9) for row in rows if row["alternative"] in expected
    }
    assert {name: round(max(ratios), 9) for name, ratios in expected.items()} == {
        row["alternative"]: round(row["most"], 9) for row in rows if row["alternative"] in expected
    }
    assert [1.0, 1.0] == [round(row["speedup"], 9) for row in rows if row["alternative"] not in expected]
