"""`tokenpeak ingest`: load archives into Postgres."""

from collections import Counter
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
