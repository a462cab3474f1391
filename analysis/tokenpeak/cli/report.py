"""`tokenpeak report`: build the site from archives."""

from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.terminal import echo


@click.command(short_help="Build the site from archives.")
@click.argument(
    "archives",
    nargs=-1,
    type=click.Path(path_type=Path),
    help="Archive folders or .tar.zst files; results/ when absent.",
)
@click.option("--output", type=click.Path(path_type=Path), default=paths.SITE_BUILD, help="Folder of the site.")
@click.option("--node-names", is_flag=True, help="Show nodes under their own names and addresses.")
def report(archives: tuple[Path, ...], output: Path, *, node_names: bool) -> None:
    """Build the site from ARCHIVES (default: results); needs no database, node or network."""
    from tokenpeak.report.site import build_site

    page = build_site(archives or (paths.RESULTS,), output, node_names=node_names, say=echo)
    echo(f"Open {page}")
