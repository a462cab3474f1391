"""`tokenpeak database`: state and tables of the Postgres that archives are loaded into, and its roles."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import options
from tokenpeak.errors import ExitStatus, InputError
from tokenpeak.spreadsheet import as_cells
from tokenpeak.terminal import echo, echo_data, echo_text

_LOST = 2
"""psql's status when there is no connection."""


@click.group(short_help="State, tables and roles of the Postgres for archives.")
def database() -> None:
    """State, tables and roles of the Postgres that archives are loaded into.

    DATABASE_URL, else the PG* variables name it; without them, it is an embedded one.
    """


@database.command()
def status() -> None:
    """Say which Postgres is used, whether it is of this version, and which sweeps it has; changes nothing."""
    from tokenpeak.store.database import open_database

    with open_database(is_prepared=False) as opened:
        echo(f"Using {opened.description}.")
        words = {
            True: "It has this version's tables.",
            False: "It has the tables of another TokenPeak; the next command that uses it makes them anew.",
            None: "It has no tables yet; tokenpeak ingest makes them.",
        }
        echo(words[opened.is_current()])
        sweeps = opened.sweep_ids()
        echo(f"{len(sweeps)} sweeps are loaded{': ' if sweeps else ''}{', '.join(sweeps)}.")


@database.command()
@click.option("--even-so", is_flag=True, help="Drop sweeps too that are not among ARCHIVES, and others' tables.")
@click.argument("archives", nargs=-1, type=options.ARCHIVE_THERE)
def rebuild(archives: tuple[Path, ...], *, even_so: bool) -> None:
    """Drop what is there, and load ARCHIVES (folders or .tar.zst; results/ by default) anew.

    Every command that uses a database of another TokenPeak's tables does so as well, where results/ has the archive of
    each sweep in it. Sweeps without an archive here would be lost: they are named, and nothing is dropped.
    """
    from tokenpeak.store.database import open_database

    with open_database(is_prepared=False) as opened:
        echo(f"Using {opened.description}.")
        opened.rebuild(archives or [paths.RESULTS], even_so=even_so)


@database.command()
@click.argument("name")
@click.option(
    "--for",
    "purpose",
    type=click.Choice(["reading", "loading"]),
    default="reading",
    show_default=True,
    help="Select from views and tables alone; or own the schema tokenpeak and nothing else.",
)
@click.option("--password-file", type=click.Path(exists=True, path_type=Path), help="A file with its password.")
@click.option("--print", "is_printed", is_flag=True, help="Print the SQL for an administrator; change nothing.")
def role(name: str, purpose: str, password_file: Path | None, *, is_printed: bool) -> None:
    """Make the role NAME with the least rights for its purpose; again changes nothing.

    Dashboards need one for reading. Commands that load archives need one for loading, which a superuser or the
    database's owner makes once: set DATABASE_URL to such a login for this command, and to the role's afterwards.
    """
    from tokenpeak.store.database import choose, open_database
    from tokenpeak.store.schema import role_statements

    choice = choose()
    if choice.folder is not None:
        raise InputError(
            "The embedded Postgres answers to this user alone, so roles are for a Postgres of yours: set DATABASE_URL."
        )
    is_reading = purpose == "reading"
    with open_database(choice, is_prepared=is_reading and not is_printed) as opened:
        if is_printed:
            for statement in role_statements(name, "reading" if is_reading else "loading", opened.name):
                echo_text(f"{statement};")
            return
        if password_file is None and not is_reading:
            echo("No --password-file: the role can log in only as pg_hba.conf allows without one.", err=True)
        password = None if password_file is None else password_file.read_text().strip()
        if password == "":
            echo(f"{password_file} is empty; write the password into it.", err=True)
            sys.exit(ExitStatus.USAGE)
        opened.make_role(name, "reading" if is_reading else "loading", password)
        echo(f"Role {name} of the {opened.description} is for {purpose}.")


@click.command(short_help="Load archives into Postgres; twice changes nothing.")
@click.argument(
    "archives",
    nargs=-1,
    type=options.ARCHIVE_THERE,
    help="Archive folders or .tar.zst files; results/ when absent.",
)
def ingest(archives: tuple[Path, ...]) -> None:
    """Load the raw files of ARCHIVES (folders or .tar.zst; default: results/) into Postgres; twice changes nothing."""
    from tokenpeak.store.database import open_database
    from tokenpeak.store.frames import frames_of_each

    loaded: list[str] = []
    counts: Counter[str] = Counter()
    with open_database(archives=archives) as database:
        echo(f"Using {database.description}.")
        for frames in frames_of_each(archives or [paths.RESULTS]):
            for file in frames.malformed:
                echo(f"skipped {file}", err=True)
            counts.update(database.load(frames))
            loaded += frames.sweeps["sweep_id"].to_list()
        database.analyze()
    rows = ", ".join(f"{count:,} {table}" for table, count in counts.items())
    echo(f"Loaded {', '.join(loaded)}: {rows}.")


@click.command(short_help="Query what was loaded, by psql; or print a connection string.")
@click.argument("query", required=False)
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "csv"]),
    default="table",
    show_default=True,
    help="How a query's rows are printed: for people or for machines.",
)
@click.option(
    "--connection-string",
    is_flag=True,
    help="Print how other tools connect; the embedded Postgres then runs until Ctrl-C.",
)
def sql(query: str | None, style: str, *, connection_string: bool) -> None:
    r"""Run QUERY on what was loaded into Postgres, or open psql there.

    The views are in the search path, v_ranking, v_decision, v_runs, v_requests and v_energy among them: \dv lists them
    all, \d+ v_runs shows one, with a comment on each column. DATABASE_URL names the Postgres; without it, it is the
    embedded one. Without QUERY, what stands on the standard input is run. Exit status 2 for a query that Postgres
    refuses.
    Hidden characters of a cell are written out by their codes, and no cell of CSV is a spreadsheet's formula.
    """
    from tokenpeak.store.database import choose, open_database
    from tokenpeak.store.embedded import psql

    is_typed = query is None and sys.stdin.isatty()
    if is_typed and style == "csv":
        raise InputError('--format csv prints the rows of a query. Give one: tokenpeak sql --format csv "SELECT …"')
    choice = choose()
    with open_database(choice) as database:
        if not database.sweep_ids():
            echo("No sweep is loaded yet: tokenpeak ingest loads those of results/.", err=True)
        if connection_string:
            echo(database.url)
            if choice.folder is not None:
                echo("Postgres runs until Ctrl-C.", err=True)
                while True:
                    time.sleep(3600)
            return
        conninfo, secret = database.client
        options = [] if is_typed else ["-v", "ON_ERROR_STOP=1", "-X"]
        options += ["-P", "pager=off", "-c", query] if query is not None else []
        options += ["--csv"] if style == "csv" else []
        if is_typed:
            echo(f"Using {database.description}. Views: \\dv; their columns: \\d+ v_runs; the end: \\q", err=True)
        sys.stdout.flush()
        # At a terminal psql has the terminal itself.
        printed = None if is_typed else subprocess.PIPE
        env = {**os.environ, **secret, **({} if is_typed else {"PGCLIENTENCODING": "UTF8"})}
        done = subprocess.run([str(psql()), *options, conninfo], env=env, check=False, stdout=printed, stderr=printed)
    if not is_typed:
        text = done.stdout.decode(errors="backslashreplace")
        echo_data(as_cells(text) if style == "csv" else text)
        echo_data(done.stderr.decode(errors="backslashreplace"), err=True)
    if done.returncode:
        sys.exit(ExitStatus.ERROR if done.returncode == _LOST else ExitStatus.USAGE)
