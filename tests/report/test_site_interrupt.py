"""Ctrl-C while the site is made, at moments drawn at random: the process ends, and the former site is whole."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokenpeak import paths

ARCHIVE = paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"
IN_TIME_S = 5.0
"""The process ends within milliseconds of the signal; a loaded machine may take longer to run it."""


@pytest.fixture(params=[1, 2])
def after_s(request: pytest.FixtureRequest) -> float:
    """When Ctrl-C comes, after the first line that is said: pages are made for two seconds and more from there."""
    return random.Random(request.param).uniform(0.1, 1.2)


def interrupted(command: str, *arguments: str, after_s: float, cwd: Path) -> subprocess.Popen[str]:
    """The command, ended by SIGINT at `after_s` of its first line."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("tokenpeak"), command, str(ARCHIVE), *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # A test that a shell runs in the background hands on that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout
    process.stdout.readline()
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(IN_TIME_S)
    finally:
        process.kill()
        process.stdout.close()
    return process


def test_serve_ends(tmp_path: Path, after_s: float) -> None:
    """Status 0, and nothing but what was there."""
    ended = interrupted("serve", "--output", "site", "--port", "0", after_s=after_s, cwd=tmp_path)

    assert 0 == ended.returncode
    assert {"site"} == {path.name for path in tmp_path.iterdir()}


def test_report_ends(tmp_path: Path, after_s: float) -> None:
    """The status of an interruption, and the former site as it was."""
    site = tmp_path / "site"
    (site / "static").mkdir(parents=True)
    (site / "static" / "site.css").write_text("former")

    ended = interrupted("report", "--output", "site", after_s=after_s, cwd=tmp_path)

    assert 130 == ended.returncode
    assert {"site"} == {path.name for path in tmp_path.iterdir()}
    assert "former" == (site / "static" / "site.css").read_text()
