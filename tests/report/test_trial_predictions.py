"""Predictions against measurements on a trial's page."""

from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak.predict.correction import errors, observed
from tokenpeak.report import open_archive
from tokenpeak.report.trials.trial_page import predictions


@pytest.mark.parametrize(("name", "metric"), [("TTFT mean", "ttft_s"), ("TPOT mean", "tpot_s")])
def test_a_trial_page_compares_what_the_accuracy_compares(tmp_path: Path, name: str, metric: str) -> None:
    """The mean that is predicted stands against the mean that was measured, on the page as in the sweep's end."""
    archive = make_archive(tmp_path / "a", axes={"max_num_seqs": [64]}, gpus=("NVIDIA L4",), seconds=2)
    view, (trial,) = open_archive(archive.path), tuple(archive.trials())
    found = observed(trial, view.spec)
    assert found is not None
    (error,) = [error for error in errors([found]) if error.metric == metric]
    (row,) = [row for row in predictions(view, trial) if row["name"] == name]

    assert f"{error.median_ratio:.2f}" == row["ratio"]
