"""Calibration on a sweep's own way, on the home's node and load hosts."""

import json

import pytest
from driven_home import Home

from tokenpeak.report.compare.history import calibrations

QUICK = ("--streams", "2", "--seconds", "0.6")


@pytest.mark.e2e
def test_sweep_attaches_the_calibration_of_its_way(home: Home) -> None:
    """A sweep says what is not covered before it begins, and its archive holds the calibration that stands for it."""
    before = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    done = home.run("calibrate", "--inventory", "shared", *QUICK)
    after = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    first, second = (json.loads((path / "sweep.json").read_text()) for path in home.archives()[-2:])
    (shown,) = calibrations(second["calibration"])

    assert 0 == done.returncode, done.stdout
    assert "not been calibrated from left + right to this machine over http" in before.stdout
    assert before.stdout.index("calibrated") < before.stdout.index("begins")
    assert None is first["calibration"]
    assert ["left", "right"] == second["calibration"]["calibrations"][0]["way"]["load_hosts"]
    assert shown["words"].startswith("from left + right to this machine over http: up to ")
    assert "WARNING concurrency=4 keeps 4 streams; 2 were found" in after.stdout or "keeps 4 streams; 0" in after.stdout
