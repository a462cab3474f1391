"""Ctrl-C while the site is made: the process ends, and the former site is whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden_site import ARCHIVE

from tokenpeak.node.machine import clock

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0


def interrupted(command: str, *arguments: str, notebooks: int, cwd: Path) -> int:
    """How the command ends that gets SIGINT when it has made this many of the pages' eight notebooks."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("tokenpeak"), command, str(ARCHIVE), "--output", "site", *arguments],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A test that a shell runs in the background hands on that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        made = ".site.making-*/*/data/notebooks/*.ipynb"
        assert clock.wait_until(lambda: len([*cwd.glob(made)]) >= notebooks, PATIENCE_S, poll_s=0.002)
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def test_report_ends(tmp_path: Path) -> None:
    """The status of an interruption, and the former site as it was."""
    site = tmp_path / "site"
    (site / "static").mkdir(parents=True)
    (site / "static" / "site.css").write_text("former")

    assert 130 == interrupted("report", notebooks=4, cwd=tmp_path)
    assert {"site"} == {path.name for path in tmp_path.iterdir()}
    assert "former" == (site / "static" / "site.css").read_text()
