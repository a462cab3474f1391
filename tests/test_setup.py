"""`make setup` takes its installer from the lock."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tokenpeak import paths

LOCK = (paths.ROOT / "requirements.lock").read_text()


@pytest.mark.e2e
def test_a_uv_on_the_path_is_never_run(tmp_path: Path) -> None:
    """Whatever is called uv there, the environment is made by the version and the file that the lock has."""
    marker = tmp_path / "ran"
    stranger = tmp_path / "bin" / "uv"
    stranger.parent.mkdir()
    stranger.write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    stranger.chmod(0o755)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copy(paths.ROOT / "Makefile", checkout)
    shutil.copy(paths.ROOT / "pyproject.toml", checkout)
    entry = re.search(r"^uv==(\S+) (?:.*\\\n)+.*\n", LOCK, re.MULTILINE)
    assert entry is not None
    # A lock of uv alone: the set-up gets as far as installing the project, for which hatchling is missing.
    (checkout / "requirements.lock").write_text(entry[0])
    environment = {**os.environ, "PATH": f"{stranger.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["make", "setup"], cwd=checkout, env=environment, capture_output=True, text=True, check=False)

    assert not marker.exists(), done.stderr
    assert "hatchling" in done.stderr
    [installed] = (checkout / ".venv").glob("lib/python*/site-packages/uv-*.dist-info")
    assert f"uv-{entry[1]}.dist-info" == installed.name


@pytest.mark.integration
def test_uv_that_the_lock_does_not_have_is_not_installed(tmp_path: Path) -> None:
    """Pip compares the hash of what the package index gives with the lock's."""
    shutil.copy(paths.ROOT / "Makefile", tmp_path)
    shutil.copy(paths.ROOT / "pyproject.toml", tmp_path)
    entry = re.search(r"^uv==\S+ ", LOCK, re.MULTILINE)
    assert entry is not None
    (tmp_path / "requirements.lock").write_text(f"{entry[0]}\\\n    --hash=sha256:{'0' * 64}\n")
    done = subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert 0 != done.returncode
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / ".venv").exists()
