"""`tokenpeak docs`: the documentation of the installed version, to be read without a network."""

from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli.interruptible import interruptible
from tokenpeak.terminal import echo


@click.command(short_help="Write this documentation and say where.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the pages; one in the state folder when absent. A site that is there is replaced.",
)
def docs(output: Path | None) -> None:
    """Write the documentation of this version as pages that open in a browser, without a network.

    Each site that `report` and `sweep` build has the same pages.
    """
    from tokenpeak.cli.documentation import documentation
    from tokenpeak.report.site.build import build_site, leave

    place = (output or paths.state_dir() / "documentation").absolute()
    with interruptible(lambda: leave(place)):
        build_site([], place, docs=documentation())
    echo(f"Open {place / 'docs' / 'index.html'}")
