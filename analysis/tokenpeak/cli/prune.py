"""`tokenpeak prune`: remove old archives."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenpeak import paths
from tokenpeak.cli.output import OUTPUT
from tokenpeak.deletion import delete
from tokenpeak.errors import ArchiveError
from tokenpeak.terminal import echo

if TYPE_CHECKING:
    from tokenpeak.store.archive import Kept


@click.command(short_help="Remove old archives; keeps the newest, or those of the last days.")
@click.option("--keep", required=True, metavar="N|Nd", help="The newest N archives, or those of the last N days.")
@click.option("--pack", "pack_into", type=OUTPUT, help="Pack each into this folder first, whole.")
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def prune(keep: str, folder: Path | None, pack_into: Path | None, *, dry_run: bool, yes: bool) -> None:
    """Remove the archives of FOLDER (default: results/) but the newest, or those of the last days.

    Sweeps that run, or were interrupted and can be resumed, stay, and do not count; so do packed files. An archive is
    the truth that everything else is made of: what Postgres has of it stays there, its pages go with the next report.
    """
    from tokenpeak.store.archive import Retention
    from tokenpeak.store.pack import SUFFIX, pack

    rule = Retention.parsed(keep)
    place = folder or paths.RESULTS
    archives = list(_archives(place))
    gone = rule.goes(archives, datetime.now(UTC))
    for one in gone:
        echo(f"{one.started_at:%Y-%m-%d} {one.path} ({_size(one.path) / 2**20:,.1f} MiB)")
    open_ended = sum(not one.is_ended for one in archives)
    stays = f"{len(archives) - len(gone)} stay" + (f", {open_ended} of them not ended" if open_ended else "")
    if not gone:
        echo(f"Nothing to remove in {place}: {stays}.")
        return
    if dry_run:
        echo(f"{len(gone)} of {len(archives)} would go; {stays}.")
        return
    if not yes:
        click.confirm(f"Remove these {len(gone)}? {stays}", abort=True)
    for one in gone:
        if pack_into is not None:
            pack(one.path, pack_into / f"{one.path.name}{SUFFIX}")
        delete(one.path)
    kept = f" Packed copies are in {pack_into}." if pack_into is not None else ""
    echo(f"Removed {len(gone)} of {len(archives)}.{kept}")


def _archives(folder: Path) -> Iterator["Kept"]:
    """The archives directly below a folder; one that cannot be read is named, and stays."""
    from tokenpeak.store.archive import Kept, open_archive

    for path in sorted(each.parent for each in folder.glob("*/sweep.json")):
        if path.is_symlink():
            continue
        try:
            archive = open_archive(path)
            sweep, end = archive.read_sweep(), archive.read_end()
        except ArchiveError as error:
            echo(f"stays: {error}", err=True)
            continue
        is_ended = end is not None and end.status == "completed"
        yield Kept(path=path, started_at=sweep.started_at, is_ended=is_ended)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
