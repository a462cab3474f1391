"""`tokenpeak database`: state and tables of the Postgres that archives are loaded into, and its roles."""

import sys
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import completed
from tokenpeak.errors import InputError
from tokenpeak.exit_status import ExitStatus
from tokenpeak.terminal import echo, echo_text


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
@click.argument("archives", nargs=-1, type=completed.ARCHIVE_THERE)
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
