"""Notebooks that answer a question of their own: each runs as shipped, and its answer follows from the raw files."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import nbformat
import polars as pl
import pytest
from scipy import stats

from tokenpeak import paths
from tokenpeak.report.site.notebook_runner import execute
from tokenpeak.store.pack import unpacked

QUESTIONS = paths.NOTEBOOKS / "questions"
LANDSCAPES = paths.ROOT / "analysis" / "landscapes"
H100 = LANDSCAPES / "search-h100.tar.zst"
ESTIMATED_AGAIN = 0.002
"""That archive's energies were recorded without an interval: they are estimated again from its readings."""
SHOWN = {
    "capacity": (2, 6),
    "compare_sweeps": (2, 5),
    "own_metric": (2, 4),
    "why_slow": (4, 6),
    "other_tools": (1, 5),
    "power_and_money": (4, 3),
}
"""How many figures and frames each shows."""


def run(name: str, folder: Path, *frames: str, **parameters: Any) -> tuple[Any, dict[str, list[dict[str, Any]]]]:
    """The executed notebook and the rows of these of its frames; its default archives are where they are shipped."""
    place = folder / "notebooks" / "questions"
    if not place.exists():
        place.mkdir(parents=True)
        (folder / "analysis").symlink_to(paths.ROOT / "analysis")
        (place / "files").symlink_to(QUESTIONS / "files")
    notebook = nbformat.read(QUESTIONS / f"{name}.ipynb", as_version=4)
    writes = "\n".join(f"{frame}.write_json('{frame}.json')" for frame in frames)
    notebook.cells.append(nbformat.v4.new_code_cell(writes or "None"))
    nbformat.write(notebook, place / f"{name}.ipynb")
    executed = execute(place / f"{name}.ipynb", place / f"{name}.executed.ipynb", parameters)
    return executed, {frame: json.loads((place / f"{frame}.json").read_text()) for frame in frames}


def raw_trials(archive: Path) -> list[dict[str, Any]]:
    """Each trial's raw JSON that has runs."""
    folder = unpacked(archive) if archive.is_file() else archive
    trials = [json.loads(path.read_bytes()) for path in sorted((folder / "trials").glob("*.json"))]
    return [trial for trial in trials if trial["runs"]]


def within(run: dict[str, Any], **percentiles: float) -> bool:
    """A share of the requests sent that each percentile asks for was within its limit."""
    counts = run["summary"]["within_limits"]
    return all(counts[name] / run["summary"]["requests_sent"] >= share for name, share in percentiles.items())


@pytest.mark.parametrize("name", SHOWN)
def test_it_runs_as_shipped(name: str, tmp_path: Path) -> None:
    """On the archives of its own parameters; its figures are pictures, its frames tables."""
    executed, _ = run(name, tmp_path)
    found = [output.data for cell in executed.cells for output in cell.get("outputs", []) if "data" in output]
    figures = [data for data in found if "image/svg+xml" in data]

    assert SHOWN[name] == (len(figures), len(found) - len(figures))
    assert all("<table" in data["text/html"] for data in found if "image/svg+xml" not in data)
    assert not any("NaN" in data["image/svg+xml"] or "undefined" in data["image/svg+xml"] for data in figures)


def test_capacity_of_measured_gpus(tmp_path: Path) -> None:
    """GPUs, money, energy and water of 100 requests/s, by an independent computation from raw JSON."""
    _, found = run("capacity", tmp_path, "answer", rate_per_s=100.0, headroom=0.25, spare_nodes=2)
    (answer,) = found["answer"]
    carried = [
        (run["summary"]["request_per_s"], run["energy"]["power_w"])
        for trial in raw_trials(H100)
        for run in trial["runs"]
        if within(run, ttft_s_p99=0.99, tpot_s_p99=0.99)
    ]
    idle_w = min(value for trial in raw_trials(H100) for value in trial["series"]["columns"]["gpu0_power_w"] if value)
    rate, power_w = max(carried)
    nodes = math.ceil(100 / (rate * 0.75)) + 2
    kwh = (100 / rate * power_w + (nodes - 100 / rate) * idle_w) * 730 / 1000 * 1.3

    assert (nodes, nodes) == (answer["nodes"], answer["gpus"])
    assert pytest.approx(nodes * 2.5 * 730) == answer["usd_per_month"]
    assert pytest.approx(kwh, rel=ESTIMATED_AGAIN) == answer["kwh_per_month"]
    assert pytest.approx(kwh * 1.8, rel=ESTIMATED_AGAIN) == answer["water_l_per_month"]


def test_comparison_of_two_sweeps(tmp_path: Path) -> None:
    """Ratios and intervals of shared configs, from raw JSON by pooled variance and Student's t; here all is noise."""
    _, found = run("compare_sweeps", tmp_path, "changes")
    sides: list[dict[str, list[float]]] = []
    for name in ("landscape-cpu", "search-cpu"):
        side: dict[str, list[float]] = {}
        for trial in raw_trials(LANDSCAPES / f"{name}.tar.zst"):
            if not trial["config"]["choices"]:
                continue
            values = [
                each["summary"]["output_tok_per_s"] for each in trial["runs"] if each["workload"]["name"] == "write"
            ]
            side.setdefault(" / ".join(trial["config"]["choices"].values()), []).extend(values)
        sides.append(side)
    logs = [{label: [math.log(value) for value in values] for label, values in side.items()} for side in sides]
    groups = [values for side in logs for values in side.values() if len(values) > 1]
    freedom = sum(len(values) - 1 for values in groups)
    spread = math.sqrt(sum((len(values) - 1) * statistics.variance(values) for values in groups) / freedom)
    shared = sorted(logs[0].keys() & logs[1].keys())
    rows = {row["label"]: row for row in found["changes"]}
    for label in shared:
        before, after = logs[0][label], logs[1][label]
        ratio = math.exp(statistics.fmean(after) - statistics.fmean(before))
        half = stats.t.ppf(1 - 0.05 / len(shared) / 2, freedom) * spread * math.sqrt(1 / len(after) + 1 / len(before))

        assert pytest.approx((ratio, ratio * math.exp(half))) == (rows[label]["ratio"], rows[label]["high"])
    assert {"within noise"} == {row["verdict"] for row in rows.values()}
    assert shared == sorted(rows)


def test_ranking_by_an_own_metric(tmp_path: Path) -> None:
    """The share of users who have 40 tokens within 1.5 s, counted request by request from the raw tables."""
    _, found = run("own_metric", tmp_path, "ranking", tokens=40, limit_s=1.5)
    folder = unpacked(LANDSCAPES / "requests-sim.tar.zst")
    shares: dict[str, list[float]] = {}
    for trial in raw_trials(folder):
        index = next(at for at, each in enumerate(trial["runs"]) if each["level"].get("rate_per_s") == 4)
        frame = pl.read_parquet(folder / "trials" / f"{trial['trial_id']}.requests.parquet")
        in_time = sent = 0
        for row in frame.filter(pl.col("run_index") == index).iter_rows(named=True):
            sent += 1
            if row["error"] is None:
                arrived = row["first_token_s"] + sum(row["event_times_us"][:39]) / 1e6
                in_time += arrived - row["due_s"] <= 1.5
        shares.setdefault(" / ".join(trial["config"]["choices"].values()), []).append(in_time / sent)
    expected = {label: statistics.fmean(values) for label, values in shares.items()}

    assert pytest.approx(expected) == {row["label"]: row["share"] for row in found["ranking"]}
    assert sorted(expected.values(), reverse=True) == pytest.approx([row["share"] for row in found["ranking"]])
    assert len(set(expected.values())) > 2
