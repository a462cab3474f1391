"""A real H100's archive, written before energies had an interval: each gets one from its own readings."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tokenpeak import paths
from tokenpeak.store.frames import open_frames
from tokenpeak.store.pack import unpacked


@pytest.fixture(scope="module")
def archive() -> Path:
    return unpacked(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")


def by_hand(archive: Path) -> dict[tuple[str, int], float]:
    """Joules of each run by straight lines between the counter's readings."""
    found = {}
    for path in sorted((archive / "trials").glob("*.json")):
        trial = json.loads(path.read_text())
        columns = trial["series"]["columns"]
        rows = zip(trial["series"]["t_s"], columns["gpu0_energy_j"], strict=True)
        t, joules = np.array([row for row in rows if None not in row], float).T
        for run in trial["runs"]:
            ends = np.array([0, run["summary"]["duration_s"]]) + run["measured_from_s"]
            found[trial["trial_id"], run["run_index"]] = float(np.diff(np.interp(ends, t, joules))[0])
    return found


def test_each_measured_energy_has_an_interval(archive: Path) -> None:
    """It is around the counter's rise, narrower than ±5%, and the figure is not far from what was recorded."""
    runs = open_frames(archive).runs
    hands = by_hand(archive)
    recorded = {
        (trial["trial_id"], run["run_index"]): run["energy"]["energy_j"]
        for trial in (json.loads(path.read_text()) for path in (archive / "trials").glob("*.json"))
        for run in trial["runs"]
    }
    columns = pl.col("trial_id", "run_index", "energy_low_j", "energy_j", "energy_high_j")

    assert 15 == len(hands) == runs.height
    for trial_id, run_index, low, joules, high in runs.select(columns).iter_rows():
        key = (trial_id, run_index)
        assert low < hands[key] < high
        assert low < recorded[key] < high
        assert (high - low) / joules < 0.1
