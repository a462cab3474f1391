"""Postgres holds what the frames hold, however often they are loaded."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psycopg
import pytest

from archive_factory import MANY_AXES, make_archive
from tokenpeak.errors import DatabaseError
from tokenpeak.report import open_archive
from tokenpeak.report.ranking import rank
from tokenpeak.store import database as database_module
from tokenpeak.store.database import Choice, choose, open_database
from tokenpeak.store.embedded import running_server
from tokenpeak.store.frames import Frames, open_frames
from tokenpeak.store.tables import TABLES


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server of this module's own, in a folder that its user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-test-"))
    folder.chmod(0o755)
    with running_server(folder / "postgres") as conninfo:
        yield conninfo
    shutil.rmtree(folder)


@pytest.fixture
def fresh(server: str, request: pytest.FixtureRequest) -> Choice:
    """An empty database."""
    name = f"test_{abs(hash(request.node.name))}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name}")
    return Choice(told="test server", conninfo=f"{server} dbname={name}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two archives, one with failures."""
    path = tmp_path_factory.mktemp("archives")
    make_archive(path / "a", seconds=5)
    axes = {axis: values[-2:] for axis, values in MANY_AXES.items()}
    make_archive(path / "b", axes=axes, seconds=5, seed=1, end=False)
    return path


@pytest.fixture(scope="module")
def frames(folder: Path) -> Frames:
    """The frames of both."""
    return open_frames(folder)


def rows(choice: Choice, query: str) -> list[tuple[object, ...]]:
    """What the query finds."""
    with psycopg.connect(choice.conninfo, options="-c search_path=tokenpeak -c timezone=UTC") as connection:
        return connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]


def comparable(frame: pl.DataFrame, json_columns: set[str]) -> list[tuple[object, ...]]:
    """The frame's rows with JSON parsed."""
    return [
        tuple(
            json.loads(value) if name in json_columns and value is not None else value
            for name, value in zip(frame.columns, row, strict=True)
        )
        for row in frame.iter_rows()
    ]


def test_database_equals_frames(fresh: Choice, frames: Frames) -> None:
    """Every row and every value of every frame is in Postgres, and nothing else, even after loading twice."""
    with open_database(fresh) as database:
        database.ingest(frames)
        counts = database.ingest(frames)
    for table in TABLES:
        names = [column.name for column in table.columns]
        json_columns = {column.name for column in table.columns if column.kind == "jsonb"}
        frame = getattr(frames, table.name).lazy().select(names).sort(table.key).collect()
        order = ", ".join(f'{key} COLLATE "C"' if frame.schema[key] == pl.String else key for key in table.key)
        found = rows(fresh, f"SELECT {', '.join(names)} FROM {table.name} ORDER BY {order}")

        assert comparable(frame, json_columns) == found, table.name
        assert frame.height == counts[table.name]


def test_a_changed_archive_replaces_its_rows(fresh: Choice, folder: Path, tmp_path: Path) -> None:
    """Loading a sweep again after trials were added or removed leaves exactly what the archive holds."""
    shutil.copytree(folder / "a", tmp_path / "a")
    with open_database(fresh) as database:
        database.ingest(open_frames(tmp_path))
        gone = min((tmp_path / "a" / "trials").glob("*.json"))
        gone.unlink()
        database.ingest(open_frames(tmp_path))

    assert [(15,)] == rows(fresh, "SELECT count(*) FROM trials")
    assert [] == rows(fresh, f"SELECT 1 FROM runs WHERE trial_id = '{gone.stem}'")


def test_a_load_that_fails_leaves_what_was_there(fresh: Choice, frames: Frames) -> None:
    """A load that breaks half-way is an error and changes nothing of the sweep."""
    broken = pl.concat([frames.runs, frames.runs.tail(1)])
    with open_database(fresh) as database:
        database.ingest(frames)
        before = rows(fresh, "SELECT count(*), min(trial_id) FROM runs")
        with pytest.raises(DatabaseError, match="make ingest"):
            database.ingest(Frames(**{**vars(frames), "runs": broken}))

    assert before == rows(fresh, "SELECT count(*), min(trial_id) FROM runs")


def test_every_column_is_commented(fresh: Choice) -> None:
    """Every column of every table and public view says what it holds."""
    with open_database(fresh):
        pass
    missing = rows(
        fresh,
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = 'tokenpeak'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 "
        "AND c.relname <> 'migrations' AND col_description(c.oid, a.attnum) IS NULL",
    )

    assert [] == missing


def test_tables_are_those_of_the_frames(fresh: Choice) -> None:
    """Migrations make exactly the columns that frames have, with their types and nullability."""
    with open_database(fresh):
        pass
    for table in TABLES:
        found = rows(
            fresh,
            "SELECT a.attname, format_type(a.atttypid, NULL), a.attnotnull FROM pg_attribute a "
            f"WHERE a.attrelid = 'tokenpeak.{table.name}'::regclass AND a.attnum > 0 ORDER BY a.attnum",
        )
        kinds = {"timestamptz": "timestamp with time zone"}
        wanted = [
            (column.name, kinds.get(column.kind, column.kind), not column.nullable or column.name in table.key)
            for column in table.columns
        ]

        assert wanted == found


def test_ranking_view_puts_the_best_first(fresh: Choice, frames: Frames) -> None:
    """v_ranking ranks by the objective's mean, and failures without a rank."""
    with open_database(fresh) as database:
        database.ingest(frames)
    ranking = rows(
        fresh,
        "SELECT rank, objective_mean, slo_met, measured FROM v_ranking WHERE sweep_id = 'b' "
        "AND hardware LIKE '%A100%' ORDER BY rank NULLS LAST",
    )
    measured = [row for row in ranking if row[3]]

    assert list(range(1, len(measured) + 1)) == [row[0] for row in measured]
    assert sorted((row[1] for row in measured if row[2]), reverse=True) == [row[1] for row in measured if row[2]]  # type: ignore[type-var]
    assert {None} == {row[0] for row in ranking if not row[3]}


def test_ranking_view_says_what_the_pages_say(fresh: Choice, tmp_path: Path) -> None:
    """Ranks, means and kept SLOs over launches that differ are the same; v_configs has the same means."""
    path = make_archive(tmp_path / "a", replicates=3, noise=0.3, seconds=3).path
    with open_database(fresh) as database:
        database.ingest(open_frames(path))
    view = open_archive(path)
    shown = sorted(
        (hardware, *row)
        for hardware in view.hardware
        for row in rank(view, hardware).frame.select("config_id", "rank", "objective", "slo_met", "n").iter_rows()
    )
    told = rows(
        fresh, "SELECT hardware, config_id, rank, objective_mean, slo_met, measured FROM v_ranking ORDER BY 1, 2"
    )
    configs = rows(fresh, "SELECT hardware, config_id, objective_mean FROM v_configs WHERE launches > 0 ORDER BY 1, 2")

    assert {True, False} <= {row[4] for row in shown}
    assert [(*row[:3], row[4:]) for row in shown] == [(*row[:3], row[4:]) for row in told]
    assert [row[3] for row in shown] == pytest.approx([row[3] for row in told])
    assert [row[3] for row in told] == [row[2] for row in configs]


def test_ranking_view_keeps_a_launch_on_other_requests_apart(fresh: Choice, frames: Frames) -> None:
    """The mean is without it; what it gave has a column of its own."""
    with open_database(fresh) as database:
        database.ingest(frames)
    config_id, hardware = frames.trials.filter(pl.col("objective").is_not_null()).select("config_id", "hardware").row(0)
    where = f"config_id = '{config_id}' AND hardware = '{hardware}' AND sweep_id = 'a'"
    told = f"SELECT objective_mean, measured, objective_once_more FROM v_ranking WHERE {where}"
    [(mean, measured, none)] = rows(fresh, told)
    rows(fresh, f"UPDATE trials SET other_requests = true WHERE {where} RETURNING 1")
    [(later, left, once_more)] = rows(fresh, told)

    assert (None, 1) == (none, measured)
    assert (None, 0, pytest.approx(mean)) == (later, left, once_more)


def test_what_came_since_is_added_and_rows_stay(fresh: Choice, frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of an earlier TokenPeak gets the migrations that it lacks, once, and keeps what it holds."""
    with open_database(fresh) as database:
        database.ingest(frames)
    known = database_module.migrations() | {"999_mood.sql": "ALTER TABLE sweeps ADD COLUMN mood text"}
    monkeypatch.setattr(database_module, "migrations", lambda: known)
    with open_database(fresh) as database:
        again = database.migrate()

    assert [] == again
    assert [(frames.sweeps.height, 0)] == rows(fresh, "SELECT count(*), count(mood) FROM sweeps")


def test_an_edited_migration_is_refused(fresh: Choice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that is not the one that was applied, and one that is not known, are refused with what to do."""
    with open_database(fresh):
        pass
    known = database_module.migrations()
    name = next(iter(known))
    monkeypatch.setattr(database_module, "migrations", lambda: known | {name: "SELECT 1"})
    with pytest.raises(DatabaseError, match="Drop the schema"), open_database(fresh):
        pass
    monkeypatch.setattr(database_module, "migrations", lambda: {name: known[name]})
    with pytest.raises(DatabaseError, match="newer TokenPeak"), open_database(fresh):
        pass


def test_choice_is_in_order_and_says_no_secret() -> None:
    """DATABASE_URL comes before PG* before the embedded server; the password is never told."""
    url = choose({"DATABASE_URL": "postgresql://me:hunter2@db.example/tp", "PGHOST": "other"})

    assert "Postgres of DATABASE_URL (tp at db.example)" == url.told
    assert "Postgres of PGHOST" == choose({"PGHOST": "other"}).told
    assert choose({}).told.startswith("embedded Postgres in /")
    with pytest.raises(DatabaseError, match="must be like"):
        choose({"DATABASE_URL": "postgres database"})


def test_a_server_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    """A dead server is one line that says that raw files are kept."""
    choice = Choice(told="Postgres of PGHOST", conninfo=f"host={tmp_path} dbname=x")
    with (
        pytest.raises(DatabaseError, match=r"Cannot reach the Postgres of PGHOST: .*Raw files are kept"),
        open_database(choice),
    ):
        pass


def test_load_survives_a_lost_connection_as_an_error(fresh: Choice, server: str, frames: Frames) -> None:
    """A server that ends the connection during the work is an error, and the next load catches up."""
    with pytest.raises(DatabaseError, match="make ingest"), open_database(fresh) as database:
        end_connections(server, fresh)
        database.ingest(frames)
    with open_database(fresh) as database:
        assert frames.trials.height == database.ingest(frames)["trials"]


def end_connections(server: str, choice: Choice) -> None:
    """Make the server drop everyone who uses the database."""
    name = choice.conninfo.rsplit("=", 1)[1]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
