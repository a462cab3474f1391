"""Postgres as a copy of the archives to query: chosen, made of tables.py and views.sql, and filled from frames.

Everything lies in the schema `tokenpeak`. Its `v_*` views are the public contract. The raw files stay the truth: a
sweep's rows are replaced whole, in one transaction, as often as one likes, and tables of another shape than this
TokenPeak's are dropped and loaded again from the archives.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote, urlencode

import polars as pl
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from tokenpeak import paths
from tokenpeak.errors import ArchiveError, DatabaseError, suggestion
from tokenpeak.records import EndRecord, SweepRecord
from tokenpeak.store.archive import parse_record
from tokenpeak.store.columns import SqlTable
from tokenpeak.store.decisions import with_decisions
from tokenpeak.store.embedded import default_folder, running_server
from tokenpeak.store.frames import Frames, frames_of, frames_of_each, sweep_folders
from tokenpeak.store.schema import KNOWN, SCHEMA, Purpose, comments, definitions, digest, role_statements, shape
from tokenpeak.store.tables import REQUESTS, TABLES
from tokenpeak.terminal import echo

PG_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT", "PGUSER")
"""Any of these says that a Postgres is meant; libpq reads them, and the others, itself."""
RELATIONS = {"v": "VIEW", "m": "MATERIALIZED VIEW", "r": "TABLE", "p": "TABLE"}
"""Kinds of what a schema holds, in the order in which they can be dropped."""
PREPARING_LOCK = 0x746F6B656E
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
def open_database(
    choice: DatabaseChoice | None = None, *, archives: Sequence[Path] = (), is_prepared: bool = True
) -> Iterator["Database"]:
    """A connection to a database of this version's tables; an embedded server runs as long as it is used.

    Tables of another version are made anew from `archives` and those of the results folder, where these hold all that
    was loaded; else that is a DatabaseError.
    """
    choice = choice or choose()
    with running_server(choice.folder) if choice.folder else nullcontext(choice.conninfo) as conninfo:
        try:
            connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_LIMIT_S)
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0]
            raise DatabaseError(
                f"Cannot reach the {choice.description}: {reason}. Raw files are kept: tokenpeak ingest."
            ) from error
        with connection:
            database = Database(connection, choice)
            if is_prepared:
                database.prepare([*archives, paths.RESULTS])
            yield database


class Database:
    """A connection to the schema. A statement that fails is a DatabaseError; what it had begun is undone."""

    def __init__(self, connection: psycopg.Connection, choice: DatabaseChoice) -> None:
        self._connection = connection
        self.description = choice.description
        self._is_embedded = choice.folder is not None
        self._has_replaced = False
        """Rows of a sweep that was here before were deleted since Postgres last looked at them."""

    @property
    def name(self) -> str:
        """The database's name."""
        return self._connection.info.dbname

    @property
    def client(self) -> tuple[str, dict[str, str]]:
        """Arguments for `psql` to connect here: a connection string without a password, and variables with it."""
        parameters = self._connection.info.get_parameters()
        # An older client knows fewer of them.
        parts = {name: str(parameters[name]) for name in CLIENT_PARAMETERS if parameters.get(name)}
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

    def is_current(self) -> bool | None:
        """Whether its tables are those of this TokenPeak; None: it has none yet."""
        with self._reported("look at the tables"):
            return f"(shape {shape()}," in self._mark() if "sweeps" in self._relations() else None

    def _relations(self) -> dict[str, str]:
        """The tables and views of the schema, whoever made them, with the kind of each."""
        query = "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        rows = self._connection.execute(query, (SCHEMA,)).fetchall()
        return {str(name): RELATIONS[kind] for name, kind in rows if kind in RELATIONS}

    def _mark(self) -> str:
        """The comment of the schema: by whom its tables were made, and of which shape."""
        query = "SELECT coalesce(obj_description(to_regnamespace(%s), 'pg_namespace'), '')"
        return "".join(map(str, self._connection.execute(query, (SCHEMA,)).fetchone() or ()))

    def prepare(self, archives: Sequence[Path]) -> None:
        """Make the tables; those of another TokenPeak anew from the archives, one process at a time.

        Where they are this version's, a role that may only read can do this too.
        """
        with self._preparing():
            is_current = self.is_current()
            if is_current is None:
                self._make()
            elif is_current:
                self._comment()
            else:
                self._refuse_newer()
                echo(f"The {self.description} has the tables of another TokenPeak: making them anew.", err=True)
                folders = sweep_folders(archives)
                self._make_anew({each: folders[each] for each in self.sweep_ids() if each in folders})

    def rebuild(self, archives: Sequence[Path], *, even_so: bool = False) -> None:
        """Drop what is there and load the archives.

        Without `even_so` a DatabaseError where a sweep is in none of them, or others' tables or views are in the schema
        or depend on it.
        """
        with self._preparing():
            self._make_anew(sweep_folders(archives), even_so=even_so)

    @contextmanager
    def _preparing(self) -> Iterator[None]:
        with self._reported("make the tables"):
            self._connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(SCHEMA)))
            self._connection.execute("SELECT pg_advisory_lock(%s)", (PREPARING_LOCK,))
            try:
                yield
            finally:
                self._connection.execute("SELECT pg_advisory_unlock(%s)", (PREPARING_LOCK,))

    def _make_anew(self, archives: Mapping[str, Path], *, even_so: bool = False) -> None:
        """Replace all tables and load the archives, all or nothing; their readers may read the new ones."""
        if not even_so:
            self._refuse_loss([sweep_id for sweep_id in self.sweep_ids() if sweep_id not in archives])
        readers = self._connection.execute(
            "SELECT DISTINCT grantee FROM information_schema.table_privileges WHERE table_schema = %s "
            "AND privilege_type = 'SELECT' AND grantee NOT IN (current_user, 'PUBLIC')",
            (SCHEMA,),
        ).fetchall()
        with self._connection.transaction():
            self._drop(even_so=even_so)
            self._make()
            for (reader,) in readers:
                grant = sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}")
                self._connection.execute(grant.format(sql.Identifier(SCHEMA), sql.Identifier(str(reader))))
            for frames in frames_of_each(list(archives.values())) if archives else ():
                self.load(frames)
        self.analyze()
        echo(f"Loaded {len(archives)} sweeps{': ' if archives else ''}{', '.join(archives)}.", err=True)

    def _refuse_newer(self) -> None:
        """DatabaseError where a newer TokenPeak made the tables."""
        made_by = re.search(r"TokenPeak (\d[\w.]*)", self._mark())
        if made_by and _numbers(made_by[1]) > _numbers(version("tokenpeak")):
            raise DatabaseError(
                f"The {self.description} has the tables of a newer TokenPeak ({made_by[1]}). Update this one, or point "
                "DATABASE_URL at another database."
            )

    def _refuse_loss(self, lost: Sequence[str]) -> None:
        """DatabaseError where sweeps are in the database alone, or the schema has others' tables or views."""
        for kind, names in (("sweeps", lost), ("others' tables", sorted(self._relations().keys() - KNOWN))):
            if names:
                raise DatabaseError(
                    f"New tables in the {self.description} would lose {kind} that are nowhere else: "
                    f"{', '.join(names)}. Give the archives of all sweeps: tokenpeak database rebuild ARCHIVES; "
                    "--even-so drops the rest."
                )

    def _drop(self, *, even_so: bool) -> None:
        """Drop TokenPeak's tables and views, on which nothing may depend; with `even_so` all that is in the schema."""
        relations = {name: kind for name, kind in self._relations().items() if even_so or name in KNOWN}
        for kind in dict.fromkeys(RELATIONS.values()):
            if names := [sql.Identifier(SCHEMA, name) for name, its_kind in relations.items() if its_kind == kind]:
                drop = sql.SQL("DROP {} {} {}").format(
                    sql.SQL(kind), sql.SQL(", ").join(names), sql.SQL("CASCADE" if even_so else "RESTRICT")
                )
                self._connection.execute(drop)

    def _make(self) -> None:
        """Make the schema, which may be there already, its tables and its views."""
        with self._connection.transaction():
            # Whoever may not make a schema may own one that is there.
            if self._connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone() == (None,):
                self._connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
            for statement in definitions():
                self._connection.execute(statement.encode())
            if self._is_embedded:  # Others find the views by their plain names.
                name = sql.Identifier(self.name)
                search_path = sql.SQL("ALTER DATABASE {} SET search_path TO {}, public")
                self._connection.execute(search_path.format(name, sql.Identifier(SCHEMA)))
            self._comment()

    def make_role(self, role: str, purpose: Purpose, password: str | None) -> None:
        """Make a role for reading or for loading, or give one that is there its rights."""
        with self._reported(f"make the role {role}"), self._connection.transaction():
            for statement in role_statements(role, purpose, self._connection.info.dbname):
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
            return [str(row[0]) for row in self._connection.execute(query).fetchall()]

    def _comment(self) -> None:
        """Give every table, view and column its meaning as a comment, when meanings have changed."""
        meanings = list(comments())
        mark = (
            f"Archives, by TokenPeak {version('tokenpeak')}; the v_ views are the public contract "
            f"(shape {shape()}, comments {digest(repr(meanings))})"
        )
        owned = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = %s"
        # A role that may only read cannot comment.
        if self._mark() == mark or self._connection.execute(owned, (SCHEMA,)).fetchone() != (True,):
            return
        with self._connection.transaction():
            for target, meaning in [*meanings, (f"SCHEMA {SCHEMA}", mark)]:
                self._connection.execute(sql.SQL("COMMENT ON {} IS {}").format(sql.SQL(target), sql.Literal(meaning)))

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
        frames = with_decisions(frames)
        counts = {table.name: 0 for table in TABLES}
        for sweep_id in frames.sweeps["sweep_id"]:
            with self._reported(f"load the archive of {sweep_id}"), self._connection.transaction():
                self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (sweep_id,))
                for name in ("sweeps", *(table.name for table in TABLES if table.is_bulk)):
                    query = sql.SQL("DELETE FROM {} WHERE sweep_id = %s").format(sql.Identifier(name))
                    self._has_replaced |= self._connection.execute(query, (sweep_id,)).rowcount > 0
                for table in TABLES:
                    counts[table.name] += self._copy(table, _rows_of(frames, table, sweep_id))
        return counts

    def _copy(self, table: SqlTable, parts: Iterable[pl.DataFrame]) -> int:
        """Add the rows by binary COPY, those of one part after the other."""
        count = 0
        statement = f"COPY {table.name} ({', '.join(table.schema())}) FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor().copy(statement.encode()) as copy:
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
                    f"No sweep {sweep_id!r} in the {self.description}. {suggestion(sweep_id, known)} "
                    "tokenpeak ingest loads more."
                )
            tables = {table.name: self._frame(table, sweep_id) for table in TABLES}
        record, end = tables["records"].select("record", "end_record").row(0)
        place = f"the record of {sweep_id} in the {self.description}"
        sweep = parse_record(record.encode(), SweepRecord, place)
        return sweep, parse_record(end.encode(), EndRecord, place) if end else None, frames_of(sweep, tables)

    def _frame(self, table: SqlTable, sweep_id: str) -> pl.DataFrame:
        """The sweep's rows of a table in the order of its key, as frames have them."""
        columns = [f"{each.name}::text" if each.kind == "jsonb" else each.name for each in table.columns]
        order = [f'{key} COLLATE "C"' if table.schema()[key] == pl.String else key for key in table.key]
        query = sql.SQL("SELECT {} FROM {} WHERE sweep_id = %s ORDER BY {}").format(
            sql.SQL(", ".join(columns)), sql.Identifier(table.name), sql.SQL(", ".join(order))
        )
        rows = self._connection.execute(query, (sweep_id,)).fetchall()
        return pl.DataFrame(rows, schema=table.schema(), orient="row")

    @contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        """Turn Postgres's errors into one that says what was done, where, and what to do."""
        try:
            yield
        except psycopg.Error as error:
            first, detail = [*str(error).strip().splitlines(), "", ""][:2]
            reason = f"{first or type(error).__name__}{f' ({detail})' if detail.startswith('DETAIL') else ''}"
            raise DatabaseError(
                f"Could not {doing} in the {self.description}: {reason}. Raw files are kept: tokenpeak ingest."
            ) from error


def _numbers(version_text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version_text)[:3]]


def _with_json(table: SqlTable, rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """The rows with their JSON text marked as such."""
    is_json = [column.kind == "jsonb" for column in table.columns]
    if not any(is_json):
        return iter(rows)
    return (
        tuple(
            Jsonb(value, dumps=_without_nul) if marked and value is not None else value
            for marked, value in zip(is_json, row, strict=True)
        )
        for row in rows
    )


def _without_nul(text: str) -> str:
    """JSON text without U+0000, which an engine's words and another's archive may hold."""
    return _ESCAPE.sub(lambda match: NO_NUL if match[0] == "\\u0000" else match[0], text)


def _rows_of(frames: Frames, table: SqlTable, sweep_id: str) -> Iterator[pl.DataFrame]:
    """The sweep's rows with exactly the table's columns; requests in parts, which memory need not hold together."""
    names = [column.name for column in table.columns]
    plain = pl.col(pl.String).str.replace_all("\0", NO_NUL, literal=True)
    if table is REQUESTS:
        yield from (part.select(names).with_columns(plain) for part in frames.request_parts(sweep_id))
        return
    yield getattr(frames, table.name).filter(pl.col("sweep_id") == sweep_id).select(names).with_columns(plain)


def _where(parts: Mapping[str, object]) -> str:
    """Host and database of a connection string; never its password."""
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"{parts.get('dbname') or 'default database'} at {host}"
