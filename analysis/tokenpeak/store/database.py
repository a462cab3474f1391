"""Postgres as a copy of the archives to query: chosen, migrated, and filled from frames.

Everything lies in the schema `tokenpeak`. Its `v_*` views are the public contract (migrations/002_views.sql). The
raw files stay the truth: a sweep's rows are replaced whole, in one transaction, as often as one likes.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlencode

import polars as pl
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from tokenpeak.errors import ArchiveError, DatabaseError, InputError, suggestion
from tokenpeak.records import EndRecord, SweepRecord
from tokenpeak.store.archive import parse_record
from tokenpeak.store.embedded import default_folder, running_server
from tokenpeak.store.frames import Frames, frames_of
from tokenpeak.store.tables import REQUESTS, TABLES, SqlTable
from tokenpeak.store.views import views

Purpose = Literal["reading", "loading"]
_OWNED = """\
DO $$ DECLARE one record; BEGIN
FOR one IN SELECT relname, relkind FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'v')
LOOP EXECUTE format('ALTER %s {schema}.%I OWNER TO {role}',
    CASE one.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, one.relname); END LOOP; END $$"""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def statements(role: str, purpose: Purpose, database: str, schema: str) -> Iterator[str]:
    """The SQL that makes a role, or gives one that is there its rights; again changes nothing.

    One for reading selects from the schema's tables and views, those of later migrations too. One for loading owns the
    schema, and nothing else: a superuser or the database's owner gives that once. InputError for a name that would
    need quotes.
    """
    if not _NAME.fullmatch(role) or role.startswith("pg_"):
        raise InputError(f"A role cannot be called {role!r}; give small letters, digits and underscores.")
    place = '"' + database.replace('"', '""') + '"'
    yield (
        f"DO $$ BEGIN CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    yield f"GRANT CONNECT ON DATABASE {place} TO {role}"
    yield f"ALTER ROLE {role} IN DATABASE {place} SET search_path TO {schema}"
    if purpose == "reading":
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
        yield f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}"
        return
    yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
    yield _OWNED.format(schema=schema, role=role)
    yield f"ALTER SCHEMA {schema} OWNER TO {role}"


SCHEMA = "tokenpeak"
PG_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT", "PGUSER")
"""Any of these says that a Postgres is meant; libpq reads them, and the others, itself."""
MIGRATION_LOCK = 0x746F6B656E
CONNECT_LIMIT_S = 10
NO_NUL = "\N{REPLACEMENT CHARACTER}"
"""In place of U+0000, which no text of Postgres's may have."""
_ESCAPE = re.compile(r"\\u0000|\\.")
CLIENT_PARAMETERS = (
    *("host", "hostaddr", "port", "dbname", "user", "options"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "krbsrvname", "target_session_attrs"),
)
"""Of a connection, those that psql is given."""


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
def open_database(choice: DatabaseChoice | None = None, *, is_migrated: bool = True) -> Iterator["Database"]:
    """A connection to a database, given every migration first; an embedded server runs as long as it is used."""
    choice = choice or choose()
    if choice.folder is None:
        with _connected(choice.conninfo, choice.description, is_migrated=is_migrated) as database:
            yield database
        return
    with (
        running_server(choice.folder) as conninfo,
        _connected(conninfo, choice.description, is_migrated=is_migrated) as database,
    ):
        if is_migrated:
            database.put_into_search_path()
        yield database


@contextmanager
def _connected(conninfo: str, description: str, *, is_migrated: bool) -> Iterator["Database"]:
    try:
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_LIMIT_S)
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise DatabaseError(
            f"Cannot reach the {description}: {reason}. Raw files are kept; make ingest loads them."
        ) from error
    with connection:
        database = Database(connection, description)
        if is_migrated:
            database.migrate()
        yield database


class Database:
    """A connection to the schema. A statement that fails is a DatabaseError; what it had begun is undone."""

    def __init__(self, connection: psycopg.Connection, description: str) -> None:
        self._connection = connection
        self.description = description
        self._has_replaced = False
        """Rows of a sweep that was here before were deleted since Postgres last looked at them."""

    @property
    def name(self) -> str:
        """The database's name."""
        return self._connection.info.dbname

    @property
    def client(self) -> tuple[str, dict[str, str]]:
        """What `psql` takes to connect here: a connection string without a password, and variables with it."""
        found = self._connection.info.get_parameters()
        # An older client knows fewer of them.
        parts = {name: str(found[name]) for name in CLIENT_PARAMETERS if found.get(name)}
        parts["options"] = f"{parts.get('options', '')} -csearch_path={SCHEMA}".strip()
        password = self._connection.info.password
        return make_conninfo("", **parts), {"PGPASSWORD": password} if password else {}

    @property
    def url(self) -> str:
        """The connection string for other tools, with the views in the search path and without a password."""
        info = self._connection.info
        place = "" if info.host.startswith("/") else f"{info.host}:{info.port}"
        socket = {"host": info.host, "port": str(info.port)} if not place else {}
        asked = urlencode({**socket, "options": f"-csearch_path={SCHEMA}"}, quote_via=quote)
        return f"postgresql://{quote(info.user)}@{place}/{quote(info.dbname)}?{asked}"

    def pending(self) -> list[str]:
        """The migrations that are missing, in order; DatabaseError where a newer TokenPeak was here, or another one."""
        with self._reported("read the migrations"):
            return self._pending()

    def _pending(self) -> list[str]:
        row = self._connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.migrations",)).fetchone()
        applied: dict[str, str] = {}
        if row is not None and row[0] is not None:
            place = sql.Identifier(SCHEMA, "migrations")
            query = sql.SQL("SELECT name, sha256 FROM {}").format(place)
            applied = dict(self._connection.execute(query).fetchall())
        known = migrations()
        if unknown := sorted(applied.keys() - known.keys()):
            raise DatabaseError(
                f"The {self.description} was migrated by a newer TokenPeak ({', '.join(unknown)}). "
                "Update this one, or point DATABASE_URL at another database."
            )
        for name in applied:
            if applied[name] != _digest(known[name]):
                raise DatabaseError(
                    f"Migration {name} is not the one that the {self.description} was made with. "
                    "Make the schema anew from the raw files: tokenpeak database migrate --rebuild."
                )
        return [name for name in known if name not in applied]

    def migrate(self) -> list[str]:
        """Apply the migrations that are missing, in order, one process at a time; returns their names.

        Where none is missing, a role that may only read can do this too.
        """
        with self._reported("migrate"):
            self._connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
            try:
                return self._migrate()
            finally:
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))

    def _migrate(self) -> list[str]:
        execute = self._connection.execute
        execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(SCHEMA)))
        pending = self._pending()
        if pending:
            # Whoever may not make a schema may own one that is there.
            if execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone() == (None,):
                execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
            execute(
                "CREATE TABLE IF NOT EXISTS migrations (name text PRIMARY KEY, sha256 text NOT NULL, "
                "applied_at timestamptz NOT NULL DEFAULT now())"
            )
        known = migrations()
        for name in pending:
            with self._connection.transaction():
                execute(known[name].encode())
                execute("INSERT INTO migrations (name, sha256) VALUES (%s, %s)", (name, _digest(known[name])))
        self._comment()
        return pending

    def put_into_search_path(self) -> None:
        """Have every connection to this database find the views by their plain names; of a database of ours."""
        name = self._connection.info.dbname
        with self._reported("set the search path"):
            found = self._connection.execute(
                "SELECT 1 FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase "
                "WHERE d.datname = %s AND s.setrole = 0",
                (name,),
            ).fetchone()
            if found is None:
                statement = sql.SQL("ALTER DATABASE {} SET search_path TO {}, public")
                self._connection.execute(statement.format(sql.Identifier(name), sql.Identifier(SCHEMA)))

    def make_role(self, role: str, purpose: Purpose, password: str | None) -> None:
        """Make a role for reading or for loading, or give one that is there its rights."""
        with self._reported(f"make the role {role}"), self._connection.transaction():
            for statement in statements(role, purpose, self._connection.info.dbname, SCHEMA):
                self._connection.execute(statement.encode())
            if password is not None:
                hidden = self._connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
                change = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(hidden.decode()))
                self._connection.execute(change)

    def sweep_ids(self) -> list[str]:
        """The sweeps that were loaded, oldest first; none where there is no schema yet."""
        with self._reported("list the sweeps"):
            row = self._connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.sweeps",)).fetchone()
            if row is None or row[0] is None:
                return []
            query = sql.SQL("SELECT sweep_id FROM {} ORDER BY started_at").format(sql.Identifier(SCHEMA, "sweeps"))
            return [str(found[0]) for found in self._connection.execute(query).fetchall()]

    def drop(self) -> None:
        """Drop the schema with all that was loaded."""
        with self._reported("drop the schema"):
            self._connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA)))

    def _comment(self) -> None:
        """Give every column its meaning as a comment, when meanings have changed."""
        comments = [*_table_comments(), *_view_comments()]
        digest = hashlib.sha256(repr(comments).encode()).hexdigest()[:16]
        wanted = f"Archives of TokenPeak; the v_ views are the public contract (comments {digest})"
        row = self._connection.execute(
            "SELECT obj_description(oid), pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = %s",
            (SCHEMA,),
        ).fetchone()
        # A role that may only read cannot comment.
        if row is None or row[0] == wanted or not row[1]:
            return
        with self._connection.transaction():
            for target, meaning in comments:
                kind = sql.SQL("COLUMN" if "." in target else "VIEW" if target.startswith("v_") else "TABLE")
                place = sql.Identifier(*target.split("."))
                self._connection.execute(sql.SQL("COMMENT ON {} {} IS {}").format(kind, place, sql.Literal(meaning)))
            self._connection.execute(
                sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(SCHEMA), sql.Literal(wanted))
            )

    def ingest(self, frames: Frames) -> dict[str, int]:
        """Load all that there is to load, and have Postgres look at it; returns rows by table."""
        counts = self.load(frames)
        self.analyze()
        return counts

    def analyze(self) -> None:
        """Have Postgres look at what was loaded, so that it plans queries well, and give room of replaced rows back.

        An embedded server seldom runs for as long as Postgres waits before it does that by itself.
        """
        with self._reported("load the archives"):
            doing = "VACUUM (ANALYZE)" if self._has_replaced else "ANALYZE"
            self._connection.execute(f"{doing} trials, runs, series, requests".encode())
        self._has_replaced = False

    def load(self, frames: Frames) -> dict[str, int]:
        """Replace the rows of every sweep in the frames, each sweep in one transaction; returns rows by table."""
        counts = {table.name: 0 for table in TABLES}
        for sweep_id in frames.sweeps["sweep_id"]:
            with self._reported(f"load the archive of {sweep_id}"), self._connection.transaction():
                self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (sweep_id,))
                for name in ("requests", "series", "sweeps"):
                    query = sql.SQL("DELETE FROM {} WHERE sweep_id = %s").format(sql.Identifier(name))
                    self._has_replaced |= self._connection.execute(query, (sweep_id,)).rowcount > 0
                for table in TABLES:
                    counts[table.name] += self._copy(table, _rows_of(frames, table, sweep_id))
        return counts

    def _copy(self, table: SqlTable, parts: Iterable[pl.DataFrame]) -> int:
        """Add the rows by binary COPY, those of one part after the other."""
        count = 0
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table.name), columns)
        with self._connection.cursor().copy(statement) as copy:
            copy.set_types([column.kind for column in table.columns])
            for rows in parts:
                for row in _with_json(table, rows.iter_rows()):
                    copy.write_row(row)
                count += rows.height
        return count

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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _table_comments() -> Iterator[tuple[str, str]]:
    """Each table and `table.column` with its meaning."""
    for table in TABLES:
        yield table.name, f"A row is {table.row}."
        for column in table.columns:
            yield f"{table.name}.{column.name}", column.meaning


def _view_comments() -> Iterator[tuple[str, str]]:
    """Each view and `view.column` with its meaning."""
    for name, view in views(migrations()).items():
        yield name, view.says
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
            Jsonb(value, dumps=_without_nul) if index in places and value is not None else value
            for index, value in enumerate(row)
        )


def _without_nul(text: str) -> str:
    """JSON text without U+0000, which an engine's words and another's archive may hold."""
    return _ESCAPE.sub(lambda found: NO_NUL if found[0] == "\\u0000" else found[0], text)


def _rows_of(frames: Frames, table: SqlTable, sweep_id: str) -> Iterator[pl.DataFrame]:
    """The sweep's rows with exactly the table's columns; requests in parts, which memory need not hold together."""
    names = [column.name for column in table.columns]
    plain = pl.col(pl.String).str.replace_all("\0", NO_NUL, literal=True)
    if table is REQUESTS:
        yield from (part.select(names).with_columns(plain) for part in frames.request_parts(sweep_id))
        return
    frame: pl.DataFrame = getattr(frames, table.name)
    yield frame.filter(pl.col("sweep_id") == sweep_id).select(names).with_columns(plain)


def _where(parts: Mapping[str, object]) -> str:
    """Host and database of a connection string; never its password."""
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"{parts.get('dbname') or 'default database'} at {host}"
