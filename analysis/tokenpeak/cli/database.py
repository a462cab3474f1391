"""`tokenpeak database`: state and migration of the Postgres that archives are loaded into, and its roles."""

import sys
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import completed
from tokenpeak.errors import InputError
from tokenpeak.exit_status import ExitStatus
from tokenpeak.terminal import echo, echo_text


@click.group(short_help="State, migration and roles of the Postgres for archives.")
def database() -> None:
    """State, migration and roles of the Postgres that archives are loaded into.

    DATABASE_URL, else the PG* variables name it; without them, it is an embedded one.
    """


@database.command()
def status() -> None:
    """Say which Postgres is used, whether it is of this version, and which sweeps it has; changes nothing."""
    from tokenpeak.store.database import open_database

    with open_database(is_migrated=False) as opened:
        echo(f"Using {opened.description}.")
        pending, sweeps = opened.pending(), opened.sweep_ids()
        if pending:
            echo(
                f"{len(pending)} migrations are missing: {', '.join(pending)}. tokenpeak database migrate applies them."
            )
        else:
            echo("It has every migration.")
        echo(f"{len(sweeps)} sweeps are loaded{': ' if sweeps else ''}{', '.join(sweeps)}.")


@database.command()
@click.option("--rebuild", is_flag=True, help="Drop what is there, and load ARCHIVES anew.")
@click.option("--even-so", is_flag=True, help="Drop sweeps too that are not among ARCHIVES.")
@click.argument("archives", nargs=-1, type=completed.ARCHIVE_THERE)
def migrate(archives: tuple[Path, ...], *, rebuild: bool, even_so: bool) -> None:
    """Bring a database of an older TokenPeak to this version's tables and views; its rows stay.

    Every command that uses it does so as well, where its role may. What older versions did not record stays empty until
    the archives are loaded again (tokenpeak ingest). With --rebuild, everything is made anew from ARCHIVES (folders or
    .tar.zst; results/ by default): for a database that no migration leads on from.
    """
    from tokenpeak.store.database import open_database
    from tokenpeak.store.frames import open_frames

    if archives and not rebuild:
        raise click.UsageError("ARCHIVES belong to --rebuild.")
    frames = open_frames(list(archives) or [paths.RESULTS]) if rebuild else None
    with open_database(is_migrated=False) as opened:
        echo(f"Using {opened.description}.")
        if frames is not None:
            lost = sorted(set(opened.sweep_ids()) - set(frames.sweeps["sweep_id"]))
            if lost and not even_so:
                raise InputError(
                    f"{len(lost)} sweeps are in the database alone, and would be lost: {', '.join(lost)}. Give their "
                    "archives too, or --even-so."
                )
            opened.drop()
        done = opened.migrate()
        echo(f"Applied {', '.join(done)}." if done else "It has every migration.")
        if frames is not None:
            opened.ingest(frames)
            echo(f"Loaded {', '.join(frames.sweeps['sweep_id'])}.")
        elif done and (sweeps := opened.sweep_ids()):
            echo(f"{len(sweeps)} sweeps were loaded before; make ingest fills new columns from their archives.")


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
    from tokenpeak.store.database import SCHEMA, choose, open_database, statements

    choice = choose()
    if choice.folder is not None:
        raise InputError(
            "The embedded Postgres answers to this user alone, so roles are for a Postgres of yours: set DATABASE_URL."
        )
    is_reading = purpose == "reading"
    with open_database(choice, is_migrated=is_reading and not is_printed) as opened:
        if is_printed:
            for statement in statements(name, "reading" if is_reading else "loading", opened.name, SCHEMA):
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
