"""`tokenpeak publish`: put the built site where others see it."""

from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.terminal import echo


@click.command(short_help="Send the built site to where it is served.")
@click.argument("target", type=click.Choice(["dir", "rsync", "ghpages", "s3"]))
@click.argument("destination")
@click.option("--site", type=click.Path(path_type=Path), default=paths.SITE_BUILD, help="Folder of the built site.")
@click.option("--dry-run", is_flag=True, help="Say what would leave, and send nothing.")
@click.option("--texts", is_flag=True, help="Send engine logs and free text too, of a site that was built with them.")
@click.option("--keep-everything", is_flag=True, help="Send a site that names machines, people or secrets as it is.")
def publish(target: str, destination: str, site: Path, *, dry_run: bool, texts: bool, keep_everything: bool) -> None:
    """Send the built site to DESTINATION by TARGET, after checking its links, its files and what it names."""
    from tokenpeak.report.site import publish as publishing

    publishing.publish(
        site, target, destination, dry_run=dry_run, say=echo, texts=texts, keep_everything=keep_everything
    )
