"""`tokenpeak sql` and `tokenpeak database`, as typed, on a real Postgres."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from archive_factory import make_archive
from commands import typed
from tokenpeak.store.frames import Frames, open_frames

pytestmark = pytest.mark.integration

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))


@dataclass(kw_only=True)
class Analyst:
    """Somebody with a Postgres, whose URL is in the environment, and an archive."""

    url: str
    archive: Path
    given: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What commands are started with."""
        return {**os.environ, "DATABASE_URL": self.url, **self.given}

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command that starts nothing."""
        return typed(*words, **{**self.given, "DATABASE_URL": self.url})

    def sql(self, *words: str, lines: str = "") -> "subprocess.CompletedProcess[str]":
        """`tokenpeak sql`, which starts psql, as a program with these lines on its standard input."""
        argv = [TOKENPEAK, "sql", *words]
        return subprocess.run(argv, env=self.environment, input=lines, capture_output=True, text=True, check=False)

    def rows(self, query: str, url: str | None = None) -> list[tuple[object, ...]]:
        """What a query finds."""
        with psycopg.connect(url or self.url) as connection:
            return connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that Postgres's user may enter."""
    made = Path(tempfile.mkdtemp(prefix="tokenpeak-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def archive(folder: Path) -> Path:
    """An archive."""
    make_archive(folder / "archive", seconds=5)
    return folder / "archive"


@pytest.fixture(scope="module")
def frames(archive: Path) -> Frames:
    """Its frames."""
    return open_frames(archive)


@pytest.fixture
def analyst(database: str, archive: Path) -> Analyst:
    """An analyst with an empty database."""
    return Analyst(url=database, archive=archive)


def test_query(analyst: Analyst, frames: Frames) -> None:
    """A query on a view by its plain name prints a table, or CSV; a wrong one ends with status 2."""
    empty = analyst.sql("SELECT count(*) AS runs FROM v_runs")
    loaded = analyst.run("ingest", str(analyst.archive))
    rows = analyst.sql("SELECT trial_id, output_tok_per_s FROM v_runs ORDER BY 1", "--format", "csv")
    wrong = analyst.sql("SELECT mood FROM v_runs")

    assert "No sweep is loaded yet" in empty.stderr
    assert 0 == loaded.returncode, loaded.stderr
    assert ["runs", "0"] == [empty.stdout.split()[0], empty.stdout.split()[2]]
    assert "trial_id,output_tok_per_s" == rows.stdout.splitlines()[0]
    assert frames.runs.height == len(rows.stdout.splitlines()) - 1
    assert (2, True) == (wrong.returncode, 'column "mood" does not exist' in wrong.stderr)


def test_cells_are_safe(analyst: Analyst) -> None:
    """Neither a table nor CSV has a hidden character of a cell, an error neither; numbers stay numbers."""
    query = "SELECT E'\\x1b]0;x\\x07\\u202e' AS a, '=1+1' AS b, -1.5 AS c, '@x;y' AS \"+d\""
    table = analyst.sql(query)
    rows = analyst.sql(query, "--format", "csv")
    wrong = analyst.sql("SELECT cast(E'\\u202e\\x1b' AS int)")

    assert "\\u202e" in table.stdout
    assert ["a,b,c,'+d", '"\\x1b]0;x\\x07\\u202e",\'=1+1,-1.5,"\'@x;y"'] == rows.stdout.splitlines()
    assert (2, True) == (wrong.returncode, "\\u202e\\x1b" in wrong.stderr)
    assert not set("\x1b\x07\u202e") & set(table.stdout + rows.stdout + wrong.stderr)


def test_connection_string_of_the_embedded_postgres(folder: Path, analyst: Analyst) -> None:
    """The embedded server runs for others until it is interrupted, then ends."""
    environment = {name: value for name, value in analyst.environment.items() if name != "DATABASE_URL"}
    environment["TOKENPEAK_STATE"] = str(folder / "state")
    started = subprocess.Popen(
        [TOKENPEAK, "sql", "--connection-string"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with started:
        assert started.stdout is not None
        url = started.stdout.readline().strip()
        found = analyst.rows("SELECT count(*) FROM v_runs", url)
        plain = analyst.rows("SELECT count(*) FROM v_runs", url.partition("&options")[0])
        started.send_signal(signal.SIGINT)
        status = started.wait(60)

    assert [(0,)] == found == plain
    assert 130 == status
    with pytest.raises(psycopg.OperationalError):
        analyst.rows("SELECT 1", url)


@pytest.mark.e2e
def test_role_for_reading(analyst: Analyst, server: str) -> None:
    """A role for reading queries the views and reports a sweep, and can change nothing, not even by a command."""
    analyst.run("ingest", str(analyst.archive))
    made = analyst.run("database", "role", "dashboards")
    again = analyst.run("database", "role", "dashboards")
    reader = Analyst(url=analyst.url.replace("user=postgres", "user=dashboards"), archive=analyst.archive)
    counted = reader.sql("SELECT count(*) > 0 AS any FROM v_runs", "--format", "csv")
    refused = [
        reader.sql(statement)
        for statement in (
            "DELETE FROM sweeps",
            "CREATE TABLE tokenpeak.mine (x int)",
            "DROP VIEW v_runs",
            "SELECT pg_read_file('/etc/passwd')",
        )
    ]
    loaded = reader.run("ingest", str(analyst.archive))
    with psycopg.connect(analyst.url, autocommit=True) as connection:
        connection.execute("CREATE VIEW tokenpeak.v_later AS SELECT 1 AS one")

    assert (0, 0) == (made.returncode, again.returncode), made.stderr + again.stderr
    assert ["any", "t"] == counted.stdout.split(), counted.stderr
    assert [2, 2, 2, 2] == [each.returncode for each in refused]
    assert all("permission denied" in each.stderr or "must be owner" in each.stderr for each in refused)
    assert (1, True) == (loaded.returncode, "permission denied" in loaded.stderr)
    assert [(1,)] == analyst.rows("SELECT one FROM tokenpeak.v_later", reader.url)


def test_role_for_loading(analyst: Analyst, tmp_path: Path) -> None:
    """A role for loading makes and fills the schema, and has no right to another one, or to the database."""
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    made = analyst.run("database", "role", "loader", "--for", "loading", "--password-file", str(password))
    loader = Analyst(url=analyst.url.replace("user=postgres", "user=loader"), archive=analyst.archive)
    loaded = loader.run("ingest", str(analyst.archive))
    elsewhere = loader.sql("CREATE SCHEMA other")
    [hashed] = analyst.rows("SELECT rolpassword FROM pg_authid WHERE rolname = 'loader'")

    assert 0 == made.returncode, made.stderr
    assert 0 == loaded.returncode, loaded.stderr
    assert "permission denied for database" in elsewhere.stderr
    assert str(hashed[0]).startswith("SCRAM-SHA-256$")
