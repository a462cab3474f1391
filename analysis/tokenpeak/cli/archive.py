"""`tokenpeak archive`, `prune`, `import`, `export`: archives packed and removed, others' results in, ours out."""

import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenpeak import paths
from tokenpeak.cli import options
from tokenpeak.cli.options import OUTPUT, make_output_folder
from tokenpeak.errors import ArchiveError, InputError, SpecError, TokenpeakError, suggestion
from tokenpeak.exchange.export import EXPORTS
from tokenpeak.files import delete
from tokenpeak.terminal import echo, echo_lines

if TYPE_CHECKING:
    from tokenpeak.exchange.foreign import ForeignRun
    from tokenpeak.store.archive import Archive
    from tokenpeak.store.retention import Kept

RUNS_SHOWN = 12
KEEPING = "--texts (logs and free text) or --keep-everything"


@click.command(short_help="Pack a sweep's archive into one checked file.")
@click.argument("sweep_id")
@click.option("--output", type=OUTPUT, help="The file; results/SWEEP_ID.tar.zst when absent.")
@click.option("--keep-everything", is_flag=True, help="Pack every file as it is, with names, addresses and secrets.")
@click.option("--texts", is_flag=True, help="Pack engine logs and free text (prompts, messages) too, cleaned.")
@click.option("--summaries", is_flag=True, help="Leave out single requests and engine logs; each run's figures stay.")
def archive(
    sweep_id: str,
    output: Path | None,
    *,
    keep_everything: bool,
    texts: bool,
    summaries: bool,
) -> None:
    """Pack the archive of SWEEP_ID (or at that path) with a manifest of checksums, versions and environment.

    What names machines, people or secrets is said first, and replaced, unless --keep-everything. Engine logs, and texts
    that anybody may have written, stay at home, unless --texts.
    """
    from tokenpeak.report.site.cleaned_copy import cleaned_copy, is_published
    from tokenpeak.store.archive import Archive, open_archive
    from tokenpeak.store.pack import SUFFIX, pack

    folder = _folder(sweep_id)
    published = is_published(open_archive(folder).read_sweep())
    with tempfile.TemporaryDirectory() as scratch:
        clean = Path(scratch) / "clean" / folder.name
        findings = cleaned_copy(folder, clean, node_names=published, texts=texts)
        fate = "It is packed as it is" if keep_everything else f"It is replaced; {KEEPING} packs it as it is"
        say_findings(folder, findings.lines(), fate)
        if findings.left_out:
            verb, count, first = (
                "Also packed" if keep_everything else "Left out",
                len(findings.left_out),
                findings.left_out[0],
            )
            echo(f"  {verb}: {count:,} files that are no part of the format (first {first})")
        if not keep_everything:
            clean = clean.rename(clean.with_name(Archive(clean).read_sweep().sweep_id))
        target = output or paths.RESULTS / f"{(folder if keep_everything else clean).name}{SUFFIX}"
        if keep_everything and not summaries:
            packed = pack(folder, target)
        else:
            taken_out = {
                "node names": not keep_everything and not published,
                "sensitive text": not keep_everything,
                "free text": not (keep_everything or texts or published),
                "requests": summaries,
                "engine logs": summaries or not (keep_everything or texts or published),
            }
            removed = tuple(part for part, is_out in taken_out.items() if is_out)
            packed = pack(folder if keep_everything else clean, target, removed=removed, summaries=summaries)
    echo(f"Packed {folder} into {packed} ({packed.stat().st_size:,} bytes).")


def say_findings(folder: Path, findings: list[str], fate: str) -> None:
    """Say what names machines, people or secrets, and what becomes of it."""
    if findings:
        echo(f"{folder.name} names machines, people or secrets. {fate}:")
    else:
        echo(f"{folder.name} names no machine, person or secret, as far as its fields and patterns show.")
    echo_lines(f"  {line}" for line in findings)


def _folder(sweep_id: str) -> Path:
    known = [
        path.parent for base in (paths.RESULTS, paths.ARCHIVES) if base.is_dir() for path in base.glob("*/sweep.json")
    ]
    for folder in (Path(sweep_id), *known):
        if (folder / "sweep.json").is_file() and (folder == Path(sweep_id) or folder.name == sweep_id):
            return folder
    raise InputError(f"No sweep {sweep_id!r}. {suggestion(sweep_id, [folder.name for folder in known])}")


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
    from tokenpeak.store.pack import SUFFIX, pack
    from tokenpeak.store.retention import Retention

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
    from tokenpeak.store.archive import open_archive
    from tokenpeak.store.retention import Kept

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
    from tokenpeak.vllm.flags import minor

    if engine_version is not None:
        minor(engine_version)  # it says what is wrong with another word
    results, own_name = read_sources(sources, gpu=gpu, gpus=gpus, engine_version=engine_version)
    archive = write_import(results, output, sweep_id=name or own_name)
    imported = results.imported
    echo(f"Imported {len(results.runs)} runs ({imported.format}) into {archive.path}")
    echo_lines(f"  {_figures(run)}" for run in results.runs[:RUNS_SHOWN])
    if len(results.runs) > RUNS_SHOWN:
        echo(f"  and {len(results.runs) - RUNS_SHOWN:,} more")
    echo_lines(f"WARNING {line}" for line in imported.cautions)
    for title, lines in (("differs", imported.differences), ("not mapped", imported.unmapped)):
        echo_lines(f"  {title}: {line}" for line in lines)
    echo(f"Look at it: tokenpeak report {archive.path}")


def _figures(run: "ForeignRun") -> str:
    """What was read of a run, in a line."""
    summary = run.summary
    rates = ((summary.output_tok_per_s, "output tok/s"), (summary.total_tok_per_s, "total tok/s"))
    means = ((summary.ttft_s.mean, "TTFT"), (summary.tpot_s.mean, "TPOT"), (summary.latency_s.mean, "latency"))
    words = [f"{value:,.1f} {unit}" for value, unit in rates if value is not None]
    words += [f"mean {name} {value * 1000:,.1f} ms" for value, name in means if value is not None]
    if summary.requests_failed is not None:
        of_all = "" if summary.requests_sent is None else f" of {summary.requests_sent:,}"
        words.append(f"{summary.requests_failed:,}{of_all} requests failed")
    return f"{run.config}, {run.level.label}: {', '.join(words) or 'no figure'}"


@click.command(short_help="Write archives as tables or as vllm bench serve results.")
@click.argument("archives", nargs=-1, required=True, type=options.ARCHIVE)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(EXPORTS)),
    default="csv",
    show_default=True,
    help=f"What to write: {'; '.join(f'{name}, {form.meaning}' for name, form in EXPORTS.items())}.",
)
@click.option("--output", type=OUTPUT, default=Path("exported"), show_default=True, help="Folder.")
@click.option("--texts", is_flag=True, help="Write free text (messages, prompts) too, cleaned.")
@click.option("--keep-everything", is_flag=True, help="Write everything as it is, with names, addresses and secrets.")
def export(archives: tuple[Path, ...], form: str, output: Path, *, texts: bool, keep_everything: bool) -> None:
    """Write ARCHIVES as tables, with columns.csv to say what each column is, or as results of vllm bench serve.

    DuckDB, Spark and Polars read the folders of hive as one table.

    What names machines, people or secrets is replaced, unless --keep-everything. Texts that anybody may have written
    stay at home, unless --texts.
    """
    with tempfile.TemporaryDirectory() as scratch:
        readable = _readable(archives)
        given = [each.path for each in readable] if keep_everything else _cleaned(readable, Path(scratch), texts=texts)
        make_output_folder(output)
        written = EXPORTS[form].write(given, output)
    echo(f"Wrote {len(written)} files into {output}")


def _readable(archives: Sequence[Path]) -> list["Archive"]:
    """The archives whose sweep can be read; the others are named. ArchiveError where none can."""
    from tokenpeak.spec.sweep import parse_spec
    from tokenpeak.store.archive import find_readable

    found, broken = find_readable(list(archives))
    errors: dict[Path, TokenpeakError] = dict(broken)
    for archive in found:
        try:
            parse_spec(archive.read_sweep().spec, archive.path / "sweep.json")
        except (ArchiveError, SpecError) as error:
            errors[archive.path] = error
    for path, reason in errors.items():
        echo(f"WARNING {path.name} is left out: {reason}")
    if readable := [archive for archive in found if archive.path not in errors]:
        return readable
    raise ArchiveError("None of the archives could be read; nothing was written.")


def _cleaned(archives: Sequence["Archive"], scratch: Path, *, texts: bool) -> list[Path]:
    """Copies that may leave, made as `tokenpeak archive` makes them."""
    from tokenpeak.report.site.cleaned_copy import cleaned_copy, is_published

    copies = []
    for number, archive in enumerate(archives):
        copy = scratch / str(number)
        findings = cleaned_copy(archive.path, copy, node_names=is_published(archive.read_sweep()), texts=texts)
        say_findings(archive.path, findings.lines(), f"It is replaced; {KEEPING} writes it as it is")
        copies.append(copy)
    return copies
