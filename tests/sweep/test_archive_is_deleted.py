"""Somebody deletes the results of a sweep that still runs."""

import shutil

import pytest
from driven_home import Home, read_until

from tokenpeak.node.machine import clock


@pytest.mark.faults
@pytest.mark.faults_ci
def test_results_that_are_deleted_are_written_again(home: Home) -> None:
    """It is said at once; every trial is there afterwards, readers find the archive, and the exit status is 1."""
    process = home.start("sweep", "--inventory", "lone", "--sweep", "pair", "--no-report")
    said = read_until(process, " orchestration)")
    archive = home.archives()[-1]
    shutil.rmtree(home.root / "results")
    said += read_until(process, f"PROBLEM {archive} was deleted while the sweep ran")
    at_once = clock.wait_until(lambda: (archive / "sweep.json").is_file() and len(home.trials(archive)) == 1, 5)
    rest, _ = process.communicate(timeout=200)
    again = home.run("sweep", "--resume", archive.name, "--no-report")
    report = home.run("explain", str(archive))

    assert at_once
    assert 1 == process.returncode, said + rest
    assert ["ok", "ok"] == [trial["status"] for trial in home.trials(archive)], said + rest
    assert 0 == again.returncode, again.stdout
    assert 2 == len(home.trials(archive))
    assert "No archive" not in report.stdout
