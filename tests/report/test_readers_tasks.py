"""A reader's tasks: a page's notebook, changed in at most five lines, answers a new question."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import nbformat
import pytest

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
