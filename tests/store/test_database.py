"""Postgres holds what the frames hold, however often they are loaded."""

import csv
import json
import shutil
from pathlib import Path

import polars as pl
import psycopg
import pytest

from archive_factory import make_archive
from tokenpeak.errors import ArchiveError, DatabaseError, InputError
from tokenpeak.paths import ARCHIVES
from tokenpeak.report import open_archive
from tokenpeak.report.ranking.standings import rank
from tokenpeak.store.database import DatabaseChoice, choose, open_database
from tokenpeak.store.decisions import with_decisions
from tokenpeak.store.frames import Frames, open_frames
from tokenpeak.store.tables import TABLES


@pytest.fixture
def fresh(database: str) -> DatabaseChoice:
    """An empty database."""
    return DatabaseChoice(description="test server", conninfo=database)


def rows(choice: DatabaseChoice, query: str) -> list[tuple[object, ...]]:
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


def test_database_equals_frames(fresh: DatabaseChoice, frames: Frames) -> None:
    """Every row and every value of every frame is in Postgres, and nothing else, even after loading twice."""
    with open_database(fresh) as database:
        database.ingest(frames)
        counts = database.ingest(frames)
    frames = with_decisions(frames)
    for table in TABLES:
        names = [column.name for column in table.columns]
        json_columns = {column.name for column in table.columns if column.kind == "jsonb"}
        frame = getattr(frames, table.name).lazy().select(names).sort(table.key).collect()
        order = ", ".join(f'{key} COLLATE "C"' if frame.schema[key] == pl.String else key for key in table.key)
        found = rows(fresh, f"SELECT {', '.join(names)} FROM {table.name} ORDER BY {order}")

        assert comparable(frame, json_columns) == found, table.name
        assert frame.height == counts[table.name]


def test_a_sweep_is_opened_from_postgres(
    fresh: DatabaseChoice, frames: Frames, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`postgres:SWEEP_ID` has the archive's trials, runs, series, requests and ranking; what it lacks is said."""
    with open_database(fresh) as database:
        database.ingest(frames)
    monkeypatch.setenv("DATABASE_URL", fresh.conninfo)
    archive = open_archive(folder / "b")
    stored = open_archive(f"postgres:{archive.sweep_id}")

    for name in ("trials", "runs", "series"):
        table = next(table for table in TABLES if table.name == name)
        json_columns = {column.name for column in table.columns if column.kind == "jsonb"}
        one, other = (getattr(view, name).sort(table.key) for view in (archive, stored))
        assert one.columns == other.columns
        assert comparable(one, json_columns) == comparable(other, json_columns), name
    times = ["sweep_id", "trial_id", "run_index", "request_index", "phase", "due_s", "first_token_s", "last_token_s"]
    one, other = (view.requests.select(times).collect().sort(times[:5]) for view in (archive, stored))
    assert one.equals(other)
    for hardware in archive.hardware:
        assert rank(archive, hardware).frame.rows() == rank(stored, hardware).frame.rows()
    with pytest.raises(ArchiveError, match="which holds no claims, engine logs or records of trials"):
        _ = stored.path
    with pytest.raises(InputError, match="objective cannot be changed"):
        open_archive(f"postgres:{archive.sweep_id}", objective="ttft_s_p95")
    with pytest.raises(ArchiveError, match="No sweep 'nothing'"):
        open_archive("postgres:nothing")


def test_a_load_that_fails_leaves_what_was_there(fresh: DatabaseChoice, frames: Frames) -> None:
    """A load that breaks half-way is an error and changes nothing of the sweep."""
    broken = pl.concat([frames.runs, frames.runs.tail(1)])
    with open_database(fresh) as database:
        database.ingest(frames)
        before = rows(fresh, "SELECT count(*), min(trial_id) FROM runs")
        sweep_id = frames.runs["sweep_id"][-1]
        with pytest.raises(DatabaseError, match=f"Could not load the archive of {sweep_id} .*tokenpeak ingest"):
            database.ingest(Frames(**{**vars(frames), "runs": broken}))

    assert before == rows(fresh, "SELECT count(*), min(trial_id) FROM runs")


def test_character_that_postgres_does_not_hold(fresh: DatabaseChoice, folder: Path, tmp_path: Path) -> None:
    """U+0000 in an archive's words or an engine's: the sweep is loaded, with a sign in place of it."""
    archive = Path(shutil.copytree(folder / "a", tmp_path / "theirs"))
    raw = json.loads((archive / "sweep.json").read_text())
    raw["name"], raw["spec"]["description"] = "a\0b\0\0", "\\u0000 \0\0"
    (archive / "sweep.json").write_text(json.dumps(raw))
    with open_database(fresh) as database:
        database.ingest(open_frames(archive))
        sweep, _, _ = database.read(raw["sweep_id"])

    assert raw["spec"]["description"] == sweep.spec["description"]
    loaded = str(rows(fresh, "SELECT to_jsonb(sweeps) FROM sweeps"))
    assert "a\ufffdb\ufffd\ufffd" in loaded
    assert "\\u0000 \ufffd\ufffd" in loaded.replace("\\\\", "\\")


def test_ranking_view_says_what_the_pages_say(fresh: DatabaseChoice, tmp_path: Path) -> None:
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
    ranked = rows(
        fresh, "SELECT hardware, config_id, rank, objective_mean, slo_met, measured FROM v_ranking ORDER BY 1, 2"
    )
    configs = rows(fresh, "SELECT hardware, config_id, objective_mean FROM v_configs WHERE launches > 0 ORDER BY 1, 2")

    assert {True, False} <= {row[4] for row in shown}
    assert [(*row[:3], row[4:]) for row in shown] == [(*row[:3], row[4:]) for row in ranked]
    assert [row[3] for row in shown] == pytest.approx([row[3] for row in ranked])
    assert [row[3] for row in ranked] == [row[2] for row in configs]


def test_published_energy_is_in_sql(fresh: DatabaseChoice) -> None:
    """An import that gives energy per token and no joules of a run has a row for each config, as its page has."""
    archive = ARCHIVES / "v100-deepseek-r1-32b"
    with open_database(fresh) as database:
        database.ingest(open_frames(archive))
    found = rows(fresh, "SELECT energy_j_per_output_tok FROM v_energy ORDER BY 1")
    with (archive / "source" / "ranking.csv").open() as file:
        published = [
            float(row["published_w_per_token"]) for row in csv.DictReader(file) if row["published_w_per_token"]
        ]

    assert [(pytest.approx(each),) for each in published] == found


def of_another_shape(choice: DatabaseChoice, by: str = "0.0.1") -> None:
    """Make the tables ones of another TokenPeak."""
    with psycopg.connect(choice.conninfo, autocommit=True, options="-c search_path=tokenpeak") as connection:
        connection.execute("ALTER TABLE configs ADD COLUMN mood text")
        connection.execute("CREATE TABLE migrations (name text)")
        connection.execute(f"COMMENT ON SCHEMA tokenpeak IS 'Archives, by TokenPeak {by}; (shape 0123456789abcdef, )'")


def test_tables_of_another_version_are_made_anew(
    fresh: DatabaseChoice, frames: Frames, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tables are dropped and loaded from the archives at hand, which is said; who might read them still may."""
    with open_database(fresh) as database:
        database.ingest(frames)
        database.make_role("reader_of_older", "reading", None)
    of_another_shape(fresh)
    with open_database(fresh, is_prepared=False) as database:
        assert database.is_current() is False
    with open_database(fresh, archives=[folder]) as database:
        assert database.is_current()

    assert "making them anew.\nLoaded 2 sweeps: a, b." in capsys.readouterr().err
    assert [(frames.trials.height,)] == rows(fresh, "SELECT count(*) FROM trials")
    assert [(False, True)] == rows(
        fresh,
        "SELECT EXISTS (SELECT FROM pg_attribute WHERE attname = 'mood'), has_table_privilege('reader_of_older', "
        "'tokenpeak.v_runs', 'SELECT')",
    )


def test_nothing_is_lost_unasked(fresh: DatabaseChoice, frames: Frames, folder: Path) -> None:
    """Tables of another version stay where a sweep has no archive here, or somebody else's table or view would go."""
    loaded = "SELECT count(*) FROM tokenpeak.sweeps"
    with open_database(fresh) as database:
        database.ingest(frames)
    of_another_shape(fresh)
    refused = r"lose sweeps .*: b\. Give .* database rebuild ARCHIVES"
    with pytest.raises(DatabaseError, match=refused), open_database(fresh, archives=[folder / "a"]):
        pass
    with psycopg.connect(fresh.conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE tokenpeak.own (x int)")
    with pytest.raises(DatabaseError, match=r"lose others' tables .*: own"), open_database(fresh, archives=[folder]):
        pass
    with psycopg.connect(fresh.conninfo, autocommit=True) as connection:
        connection.execute("DROP TABLE tokenpeak.own")
        connection.execute("CREATE VIEW public.mine AS SELECT sweep_id FROM tokenpeak.v_runs")
    with pytest.raises(DatabaseError, match=r"\(DETAIL: .*mine depends on"), open_database(fresh, archives=[folder]):
        pass
    assert [(2,)] == rows(fresh, loaded)
    of_newer = "Archives, by TokenPeak 99.0; (shape 0, )"
    with psycopg.connect(fresh.conninfo, autocommit=True) as connection:
        connection.execute(f"COMMENT ON SCHEMA tokenpeak IS '{of_newer}'")
    with pytest.raises(DatabaseError, match=r"newer TokenPeak \(99.0\)"), open_database(fresh, archives=[folder]):
        pass
    with open_database(fresh, is_prepared=False) as database:
        database.rebuild([folder / "a"], even_so=True)

    assert [("a",)] == rows(fresh, "SELECT sweep_id FROM tokenpeak.sweeps")


def test_choice_is_in_order_and_says_no_secret() -> None:
    """DATABASE_URL comes before PG* before the embedded server; the password is never shown."""
    url = choose({"DATABASE_URL": "postgresql://me:hunter2@db.example/tp", "PGHOST": "other"})

    assert "Postgres of DATABASE_URL (tp at db.example)" == url.description
    assert "Postgres of PGHOST" == choose({"PGHOST": "other"}).description
    assert choose({}).description.startswith("embedded Postgres in /")
    with pytest.raises(DatabaseError, match="must be like"):
        choose({"DATABASE_URL": "postgres database"})
