"""`tokenpeak import`: other tools' results as an archive."""

from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli.output import OUTPUT
from tokenpeak.terminal import echo, echo_lines


@click.command("import", short_help="Make an archive of another benchmark's results.")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", help="Name of the archive's folder; made of date and format when absent.")
@click.option("--output", type=OUTPUT, default=paths.RESULTS, help="Folder of archives.")
@click.option("--gpu", help="The device that it ran on, as nvidia-smi names it, where the files do not say.")
@click.option("--gpus", type=click.IntRange(1, 4096), default=1, show_default=True, help="How many of them.")
@click.option("--engine-version", help="The vLLM release, where the files do not say.")
def import_(
    sources: tuple[Path, ...], name: str | None, output: Path, gpu: str | None, gpus: int, engine_version: str | None
) -> None:
    """Make an archive of SOURCES: files or folders of another benchmark, or a mapping file for CSV tables."""
    from tokenpeak.exchange.assemble import write_import
    from tokenpeak.exchange.sources import read_sources

    found, own_name = read_sources(sources, gpu=gpu, gpus=gpus, engine_version=engine_version)
    archive = write_import(found, output, sweep_id=name or own_name)
    imported = found.imported
    echo(f"Imported {len(found.runs)} runs ({imported.format}) into {archive.path}")
    for title, lines in (("differs", imported.differences), ("not mapped", imported.unmapped)):
        echo_lines(f"  {title}: {line}" for line in lines)
    echo(f"Look at it: make report ARCHIVE={archive.path}")
