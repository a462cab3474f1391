"""One Postgres for all tests of this run, in whichever worker, with a database of its own for each test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tokenpeak.store import embedded


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
