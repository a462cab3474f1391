"""The one file that is put on nodes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokenpeak.node.bundle import write_bundle

PYENV = sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python3"))


def test_same_bytes(tmp_path: Path) -> None:
    """The same sources give the same bytes, so that an installed one is recognised."""
    first, second = write_bundle(tmp_path / "a.pyz"), write_bundle(tmp_path / "b.pyz")

    assert first.read_bytes() == second.read_bytes()


def test_error_is_reported(tmp_path: Path) -> None:
    """A request that is not JSON is answered by one JSON object with exit status 3."""
    bundle = write_bundle(tmp_path / "node.pyz")
    (tmp_path / "state").mkdir(mode=0o700)
    argv = [sys.executable, str(bundle), "launch", "--state", str(tmp_path / "state"), "--request", "-"]

    done = subprocess.run(argv, input="{", capture_output=True, text=True, check=False)

    assert (3, "request") == (done.returncode, json.loads(done.stdout)["error"]["code"])


@pytest.mark.skipif(not PYENV, reason="no Python 3.8 here")
def test_oldest_python(tmp_path: Path) -> None:
    """The oldest supported Python runs it."""
    bundle = write_bundle(tmp_path / "node.pyz")
    (tmp_path / "state").mkdir(mode=0o700)
    argv = [str(PYENV[0]), str(bundle), "status", "--state", str(tmp_path / "state")]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert ("", False) == (done.stderr, json.loads(done.stdout)["armed"])
