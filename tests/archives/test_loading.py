"""The published archives in Postgres: loaded twice they are there once, and what is missing is null."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from published_names import TRIALS

from tokenpeak.store.database import DatabaseChoice, open_database
from tokenpeak.store.embedded import running_server
from tokenpeak.store.frames import Frames


@pytest.fixture(scope="module")
def choice() -> Iterator[DatabaseChoice]:
    """A server of this module's own, in a folder that its user may enter."""
    with tempfile.TemporaryDirectory(prefix="tokenpeak-test-") as name:
        Path(name).chmod(0o755)
        with running_server(Path(name) / "postgres") as conninfo:
            yield DatabaseChoice(description="test server", conninfo=conninfo)


def test_loading_twice_changes_nothing(choice: DatabaseChoice, published: Frames) -> None:
    """All five load, again too, and v_ranking ranks each."""
    with open_database(choice) as database:
        counts = [database.ingest(published) for _ in range(2)]
    with psycopg.connect(choice.conninfo, options="-c search_path=tokenpeak") as connection:
        trials = dict(connection.execute("SELECT sweep_id, count(*) FROM trials GROUP BY 1").fetchall())
        ranked = {row[0] for row in connection.execute("SELECT DISTINCT sweep_id FROM v_ranking").fetchall()}
        missing = connection.execute(
            "SELECT count(*) FROM runs WHERE seed IS NOT NULL OR client_processes IS NOT NULL OR started_s IS NOT NULL"
        ).fetchone()

    assert counts[0] == counts[1]
    assert TRIALS == trials
    assert TRIALS.keys() == ranked
    assert (0,) == missing
