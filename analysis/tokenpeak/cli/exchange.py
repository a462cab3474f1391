"""`tokenpeak import`: other tools' results as an archive."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import completion
from tokenpeak.cli.options import OUTPUT, make_output_folder
from tokenpeak.errors import ArchiveError, SpecError
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
    echo(f"Look at it: tokenpeak report {archive.path}")


FORMATS = ("vllm-bench", "vllm-bench-detailed", "csv", "parquet", "hive")


@click.command(short_help="Write archives as tables or as vllm bench serve results.")
@click.argument("archives", nargs=-1, required=True, type=completion.ARCHIVE)
@click.option("--format", "form", type=click.Choice(FORMATS), default="csv", show_default=True, help="What to write.")
@click.option("--output", type=OUTPUT, default=Path("exported"), show_default=True, help="Folder.")
@click.option("--texts", is_flag=True, help="Write free text (messages, prompts) too, cleaned.")
@click.option("--keep-everything", is_flag=True, help="Write everything as it is, with names, addresses and secrets.")
def export(archives: tuple[Path, ...], form: str, output: Path, *, texts: bool, keep_everything: bool) -> None:
    """Write ARCHIVES as tables, with columns.csv to say what each column is, or as results of vllm bench serve.

    hive is Parquet with a folder for each sweep, of requests for each trial, as DuckDB, Spark and Polars read it.

    What names machines, people or secrets is replaced, unless --keep-everything. Texts that anybody may have written
    stay at home, unless --texts.
    """
    with tempfile.TemporaryDirectory() as scratch:
        given = list(archives) if keep_everything else _cleaned(archives, Path(scratch), texts=texts)
        make_output_folder(output)
        written = _write(given, form, output)
    echo(f"Wrote {len(written)} files into {output}")


def _cleaned(archives: Sequence[Path], scratch: Path, *, texts: bool) -> list[Path]:
    """Copies that may leave, made as `tokenpeak archive` makes them."""
    from tokenpeak.cli.archive import KEEPING, say_findings
    from tokenpeak.report.site.cleaned_copy import cleaned_copy, is_published
    from tokenpeak.store.archive import find_archives

    copies = []
    for number, archive in enumerate(find_archives(list(archives))):
        copy = scratch / str(number)
        try:
            findings = cleaned_copy(archive.path, copy, node_names=is_published(archive.read_sweep()), texts=texts)
        except (ArchiveError, SpecError) as error:
            echo(f"WARNING {archive.path.name} is left out: {error}")
            continue
        say_findings(archive.path, findings.lines(), f"It is replaced; {KEEPING} writes it as it is")
        copies.append(copy)
    if not copies:
        raise ArchiveError("None of the archives could be read; nothing was written.")
    return copies


def _write(archives: list[Path], form: str, output: Path) -> list[Path]:
    from tokenpeak.exchange.export import export_tables, export_vllm_bench
    from tokenpeak.names import inside
    from tokenpeak.store.archive import find_archives
    from tokenpeak.store.frames import open_frames

    if form in ("csv", "parquet", "hive"):
        return export_tables(open_frames(archives), output, form)
    return [
        path
        for archive in find_archives(archives)
        for path in export_vllm_bench(
            archive, inside(output, archive.read_sweep().sweep_id), detailed=form == "vllm-bench-detailed"
        )
    ]
