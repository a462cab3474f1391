"""Postgres as a copy of the archives to query: chosen, migrated, and filled from frames.

Everything lies in the schema `tokenpeak`. Its `v_*` views are the public contract (migrations/002_views.sql). The
raw files stay the truth: a sweep's rows are replaced whole, in one transaction, as often as one likes.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import polars as pl
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from tokenpeak.errors import ArchiveError, DatabaseError, suggestion
from tokenpeak.records import EndRecord, SweepRecord
from tokenpeak.store.archive import parse_record
from tokenpeak.store.columns import SqlTable
from tokenpeak.store.embedded import default_folder, running_server
from tokenpeak.store.frames import Frames, frames_of
from tokenpeak.store.tables import TABLES
from tokenpeak.store.views import views

SCHEMA = "tokenpeak"
PG_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT", "PGUSER")
"""Any of these says that a Postgres is meant; libpq reads them, and the others, itself."""
MIGRATION_LOCK = 0x746F6B656E
CONNECT_LIMIT_S = 10


@dataclass(frozen=True, kw_only=True)
class DatabaseChoice:
    """Which Postgres is used and why; no secret is in `description`. An empty `conninfo`: libpq's variables decide."""

    description: str
    conninfo: str = ""
    folder: Path | None = None
    """Where the embedded server keeps its data; None for a server that is not ours."""


def choose(environment: Mapping[str, str] = os.environ) -> DatabaseChoice:
    """`DATABASE_URL`, else the `PG*` variables, else the embedded server."""
    if url := environment.get("DATABASE_URL"):
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise DatabaseError("DATABASE_URL must be like postgresql://USER@HOST/DATABASE.") from error
        return DatabaseChoice(description=f"Postgres of DATABASE_URL ({_where(parts)})", conninfo=url)
    if given := [name for name in PG_VARIABLES if environment.get(name)]:
        return DatabaseChoice(description=f"Postgres of {', '.join(given)}")
    folder = default_folder()
    return DatabaseChoice(description=f"embedded Postgres in {folder}", folder=folder)


@contextmanager
def open_database(choice: DatabaseChoice | None = None) -> Iterator["Database"]:
    """A connection to a database that has every migration; an embedded server runs as long as it is used."""
    choice = choice or choose()
    if choice.folder is None:
        with _connected(choice.conninfo, choice.description) as database:
            yield database
    else:
        with running_server(choice.folder) as conninfo, _connected(conninfo, choice.description) as database:
            yield database


@contextmanager
def _connected(conninfo: str, description: str) -> Iterator["Database"]:
    try:
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_LIMIT_S)
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise DatabaseError(
            f"Cannot reach the {description}: {reason}. Raw files are kept; make ingest loads them."
        ) from error
    with connection:
        database = Database(connection, description)
        database.migrate()
        yield database


class Database:
    """A connection to the schema. A statement that fails is a DatabaseError; what it had begun is undone."""

    def __init__(self, connection: psycopg.Connection, description: str) -> None:
        self._connection = connection
        self.description = description

    def migrate(self) -> list[str]:
        """Apply the migrations that are missing, in order, one process at a time; returns their names."""
        with self._reported("migrate"):
            self._connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
            try:
                return self._migrate()
            finally:
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))

    def _migrate(self) -> list[str]:
        execute = self._connection.execute
        execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(SCHEMA)))
        execute(
            "CREATE TABLE IF NOT EXISTS migrations (name text PRIMARY KEY, sha256 text NOT NULL, "
            "applied_at timestamptz NOT NULL DEFAULT now())"
        )
        applied: dict[str, str] = dict(execute("SELECT name, sha256 FROM migrations").fetchall())
        known = migrations()
        if unknown := sorted(applied.keys() - known.keys()):
            raise DatabaseError(
                f"The {self.description} was migrated by a newer TokenPeak ({', '.join(unknown)}). "
                "Update this one, or point DATABASE_URL at another database."
            )
        done = []
        for name, text in known.items():
            digest = hashlib.sha256(text.encode()).hexdigest()
            if name not in applied:
                with self._connection.transaction():
                    execute(text.encode())
                    execute("INSERT INTO migrations (name, sha256) VALUES (%s, %s)", (name, digest))
                done.append(name)
            elif applied[name] != digest:
                raise DatabaseError(
                    f"Migration {name} is not the one that the {self.description} was made with. "
                    f"Drop the schema (DROP SCHEMA {SCHEMA} CASCADE) and load the raw files again (make ingest)."
                )
        self._comment()
        return done

    def _comment(self) -> None:
        """Give every column its meaning as a comment, when meanings have changed."""
        comments = [*_table_comments(), *_view_comments()]
        digest = hashlib.sha256(repr(comments).encode()).hexdigest()[:16]
        wanted = f"Archives of TokenPeak; the v_ views are the public contract (comments {digest})"
        row = self._connection.execute("SELECT obj_description(%s::regnamespace)", (SCHEMA,)).fetchone()
        if row == (wanted,):
            return
        with self._connection.transaction():
            for target, meaning in comments:
                kind = sql.SQL("COLUMN" if "." in target else "TABLE")
                place = sql.Identifier(*target.split("."))
                self._connection.execute(sql.SQL("COMMENT ON {} {} IS {}").format(kind, place, sql.Literal(meaning)))
            self._connection.execute(
                sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(SCHEMA), sql.Literal(wanted))
            )

    def ingest(self, frames: Frames) -> dict[str, int]:
        """Replace the rows of every sweep in the frames, each sweep in one transaction; returns rows by table."""
        counts = {table.name: 0 for table in TABLES}
        with self._reported("load the archives"):
            for sweep_id in frames.sweeps["sweep_id"]:
                with self._connection.transaction():
                    self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (sweep_id,))
                    self._connection.execute("DELETE FROM sweeps WHERE sweep_id = %s", (sweep_id,))
                    for table in TABLES:
                        counts[table.name] += self._copy(table, _rows_of(frames, table, sweep_id))
            self._connection.execute("ANALYZE trials, runs, series, requests")
        return counts

    def _copy(self, table: SqlTable, rows: pl.DataFrame) -> int:
        """Add the rows by binary COPY."""
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table.name), columns)
        with self._connection.cursor().copy(statement) as copy:
            copy.set_types([column.kind for column in table.columns])
            for row in _with_json(table, rows.iter_rows()):
                copy.write_row(row)
        return rows.height

    def read(self, sweep_id: str) -> tuple[SweepRecord, EndRecord | None, Frames]:
        """A sweep's record, how it ended, and its frames; ArchiveError for one that is not here, or not whole."""
        with self._reported(f"read {sweep_id}"), self._connection.transaction():
            self._connection.execute("SET LOCAL TIME ZONE 'UTC'")
            known = [str(row[0]) for row in self._connection.execute("SELECT sweep_id FROM sweeps").fetchall()]
            if sweep_id not in known:
                raise ArchiveError(
                    f"No sweep {sweep_id!r} in the {self.description}. {suggestion(sweep_id, known)} make ingest loads "
                    "more."
                )
            tables = {table.name: self._frame(table, sweep_id) for table in TABLES}
        if tables["records"].is_empty():
            raise ArchiveError(
                f"The {self.description} has the figures of {sweep_id} and not its record: an earlier TokenPeak loaded "
                "it. Load the archive again (make ingest), or give the archive itself."
            )
        record, end = tables["records"].select("record", "end_record").row(0)
        place = f"the record of {sweep_id} in the {self.description}"
        sweep = parse_record(record.encode(), SweepRecord, place)
        return sweep, parse_record(end.encode(), EndRecord, place) if end else None, frames_of(sweep, tables)

    def _frame(self, table: SqlTable, sweep_id: str) -> pl.DataFrame:
        """The sweep's rows of a table in the order of its key, as frames have them."""
        columns = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(column.name))
            if column.kind == "jsonb"
            else sql.Identifier(column.name)
            for column in table.columns
        )
        order = sql.SQL(", ").join(
            sql.SQL('{} COLLATE "C"').format(sql.Identifier(key))
            if table.schema()[key] == pl.String
            else sql.Identifier(key)
            for key in table.key
        )
        query = sql.SQL("SELECT {} FROM {} WHERE sweep_id = %s ORDER BY {}").format(
            columns, sql.Identifier(table.name), order
        )
        rows = self._connection.execute(query, (sweep_id,)).fetchall()
        return pl.DataFrame(rows, schema=table.schema(), orient="row")

    @contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        """Turn Postgres's errors into one that says what was done, where, and what to do."""
        try:
            yield
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise DatabaseError(
                f"Could not {doing} in the {self.description}: {reason}. Raw files are kept; make ingest loads them."
            ) from error


def migrations() -> dict[str, str]:
    """The migrations' names and text, in the order in which they are applied."""
    folder = resources.files("tokenpeak.store") / "migrations"
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return {name: (folder / name).read_text() for name in files}


def _table_comments() -> Iterator[tuple[str, str]]:
    """Each table and `table.column` with its meaning."""
    for table in TABLES:
        yield table.name, f"A row is {table.row}."
        for column in table.columns:
            yield f"{table.name}.{column.name}", column.meaning


def _view_comments() -> Iterator[tuple[str, str]]:
    """Each `view.column` with its meaning."""
    for name, view in views(migrations()).items():
        for column in view.columns:
            yield f"{name}.{column.name}", column.meaning


def _with_json(table: SqlTable, rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """The rows with their JSON text marked as such."""
    places = {index for index, column in enumerate(table.columns) if column.kind == "jsonb"}
    if not places:
        yield from rows
        return
    for row in rows:
        yield tuple(
            Jsonb(value, dumps=str) if index in places and value is not None else value
            for index, value in enumerate(row)
        )


def _rows_of(frames: Frames, table: SqlTable, sweep_id: str) -> pl.DataFrame:
    """The sweep's rows with exactly the table's columns."""
    frame: pl.DataFrame | pl.LazyFrame = getattr(frames, table.name)
    chosen = frame.lazy().filter(pl.col("sweep_id") == sweep_id).select(column.name for column in table.columns)
    return chosen.collect()


def _where(parts: Mapping[str, object]) -> str:
    """Host and database of a connection string; never its password."""
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"{parts.get('dbname') or 'default database'} at {host}"
