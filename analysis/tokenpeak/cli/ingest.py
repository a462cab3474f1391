"""`tokenpeak ingest`: load archives into Postgres."""

from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import completed
from tokenpeak.terminal import echo


@click.command(short_help="Load archives into Postgres; twice changes nothing.")
@click.argument(
    "archives",
    nargs=-1,
    type=completed.ARCHIVE_THERE,
    help="Archive folders or .tar.zst files; results/ when absent.",
)
def ingest(archives: tuple[Path, ...]) -> None:
    """Load the raw files of ARCHIVES (folders or .tar.zst; default: results/) into Postgres; twice changes nothing."""
    from tokenpeak.store.database import open_database
    from tokenpeak.store.frames import open_frames

    frames = open_frames(archives or [paths.RESULTS])
    for file in frames.malformed:
        echo(f"skipped {file}", err=True)
    with open_database() as database:
        echo(f"Using {database.description}.")
        counts = database.ingest(frames)
    rows = ", ".join(f"{count:,} {table}" for table, count in counts.items())
    echo(f"Loaded {', '.join(frames.sweeps['sweep_id'])}: {rows}.")
