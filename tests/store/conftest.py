"""Two archives, and one Postgres for all tests of this run, in whichever worker, with a database for each test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from archive_factory import MANY_AXES, make_archive
from tokenpeak.store import embedded
from tokenpeak.store.frames import Frames, open_frames


@pytest.fixture(scope="session")
def server(testrun_uid: str) -> Iterator[str]:
    """A server that its last user stops, in a folder that its own user may enter; nothing of it survives a crash."""
    folder = Path(tempfile.gettempdir()) / f"tokenpeak-test-{testrun_uid}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "SETTINGS", f"{embedded.SETTINGS}fsync = off\n")
        with embedded.running_server(folder) as conninfo:
            yield conninfo
    if not (folder / "data" / "postmaster.pid").exists():
        shutil.rmtree(folder)


@pytest.fixture
def database(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of an empty database."""
    name = f"test_{abs(hash(request.node.nodeid))}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield f"{server} dbname={name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two archives, one with failures."""
    path = tmp_path_factory.mktemp("archives")
    make_archive(path / "a", seconds=5)
    axes = {axis: values[-2:] for axis, values in MANY_AXES.items()}
    make_archive(path / "b", axes=axes, seconds=5, seed=1, end=False)
    return path


@pytest.fixture(scope="session")
def frames(folder: Path) -> Frames:
    """The frames of both."""
    return open_frames(folder)
