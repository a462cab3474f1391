"""`tokenpeak sql`: psql, or one query, on what was loaded."""

import os
import subprocess
import sys
import time

import click

from tokenpeak.errors import InputError
from tokenpeak.exit_status import ExitStatus
from tokenpeak.spreadsheet import as_cells
from tokenpeak.terminal import echo, echo_data

_LOST = 2
"""psql's status when there is no connection."""


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

    The views v_runs, v_trials, v_ranking, v_rates, v_max_rates, v_energy and v_configs are in the search path, with a
    comment on each column: \d+ v_runs shows them. DATABASE_URL names the Postgres; without it, it is the embedded one.
    Without QUERY, what stands on the standard input is run. Exit status 2 for a query that Postgres refuses.
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
            echo("No sweep is loaded yet: make ingest loads those of results/.", err=True)
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
