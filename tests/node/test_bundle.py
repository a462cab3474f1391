"""The one file that is put on nodes."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tokenpeak.node import bundle
from tokenpeak.node.bundle import write_bundle

PYENV = sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python3"))


def test_same_bytes(tmp_path: Path) -> None:
    """The same sources give the same bytes, so that an installed one is recognised."""
    first, second = write_bundle(tmp_path / "a.pyz"), write_bundle(tmp_path / "b.pyz")

    assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(not PYENV, reason="no Python 3.8 here")
def test_oldest_python(tmp_path: Path) -> None:
    """The oldest supported Python runs it."""
    script = write_bundle(tmp_path / "node.pyz")
    (tmp_path / "state").mkdir(mode=0o700)
    argv = [str(PYENV[0]), str(script), "status", "--state", str(tmp_path / "state")]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert ("", False) == (done.stderr, json.loads(done.stdout)["armed"])


def test_bytecode_is_run_and_no_other_release_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python of the controller's release needs no source; one of another release reads it."""
    (tmp_path / "state").mkdir(mode=0o700)
    whole = write_bundle(tmp_path / "whole.pyz")
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(tmp_path / "compiled.pyz", "w") as compiled:
        for name in source.namelist():
            if not name.endswith(".py"):
                compiled.writestr(name, source.read(name))
    monkeypatch.setattr(bundle, "MAGIC_NUMBER", b"\0\0\r\n")
    bundle._packed.cache_clear()
    write_bundle(tmp_path / "foreign.pyz")
    bundle._packed.cache_clear()

    for name in ("compiled.pyz", "foreign.pyz"):
        argv = [sys.executable, "-I", str(tmp_path / name), "status", "--state", str(tmp_path / "state")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert ("", False) == (done.stderr, json.loads(done.stdout)["armed"])
