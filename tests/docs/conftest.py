"""The documentation, built once for all tests of a run."""

import fcntl
from pathlib import Path

import pytest

from tokenpeak.cli.documentation import documentation
from tokenpeak.report.site import build_site


@pytest.fixture(scope="session")
def docs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder docs/ of a site without a sweep, made by whichever process of a test run comes first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "documented"
    with folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            build_site([], folder, docs=documentation())
    return folder / "docs"
