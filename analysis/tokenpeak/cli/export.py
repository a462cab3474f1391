"""`tokenpeak export`: archives in other tools' formats."""

from pathlib import Path

import click

from tokenpeak.terminal import echo

FORMATS = ("vllm-bench", "vllm-bench-detailed", "csv", "parquet")


@click.command(short_help="Write archives as tables or as vllm bench serve results.")
@click.argument("archives", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), default="csv", show_default=True, help="What to write.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("exported"), show_default=True, help="Folder.")
def export(archives: tuple[Path, ...], form: str, output: Path) -> None:
    """Write ARCHIVES as tables, with columns.csv to say what each column is, or as results of vllm bench serve."""
    from tokenpeak.exchange.export import export_tables, export_vllm_bench
    from tokenpeak.names import inside
    from tokenpeak.store.frames import open_frames
    from tokenpeak.store.raw import find_archives

    if form in ("csv", "parquet"):
        written = export_tables(open_frames(list(archives)), output, form)
    else:
        written = [
            path
            for archive in find_archives(list(archives))
            for path in export_vllm_bench(
                archive, inside(output, archive.read_sweep().sweep_id), detailed=form == "vllm-bench-detailed"
            )
        ]
    echo(f"Wrote {len(written)} files into {output}")
