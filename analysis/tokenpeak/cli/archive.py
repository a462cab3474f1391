"""`tokenpeak archive`: pack a sweep's archive into one file."""

import tempfile
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.errors import ArchiveError, suggestion
from tokenpeak.terminal import echo


@click.command(short_help="Pack a sweep's archive into one checked file.")
@click.argument("sweep_id")
@click.option("--output", type=click.Path(path_type=Path), help="The file; results/SWEEP_ID.tar.zst when absent.")
@click.option("--no-node-names", is_flag=True, help="Replace names and addresses of nodes by labels.")
@click.option("--no-prompts", is_flag=True, help="Replace prompts by a digest; leave out engine logs.")
@click.option("--summaries", is_flag=True, help="Leave out single requests and engine logs; each run's figures stay.")
def archive(sweep_id: str, output: Path | None, *, no_node_names: bool, no_prompts: bool, summaries: bool) -> None:
    """Pack the archive of SWEEP_ID (or at that path) with a manifest of checksums, versions and environment."""
    from tokenpeak.report.release import release
    from tokenpeak.store.pack import SUFFIX, pack, without_prompts, without_requests

    folder = _folder(sweep_id)
    target = output or paths.RESULTS / f"{folder.name}{SUFFIX}"
    if not (no_node_names or no_prompts or summaries):
        packed = pack(folder, target)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / folder.name
            release(folder, copy, node_names=not no_node_names)
            if no_prompts:
                without_prompts(copy)
            if summaries:
                without_requests(copy)
            taken_out = {
                "node names": no_node_names,
                "prompts": no_prompts,
                "requests": summaries,
                "engine logs": no_prompts or summaries,
            }
            packed = pack(copy, target, removed=tuple(what for what, is_out in taken_out.items() if is_out))
    echo(f"Packed {folder} into {packed} ({packed.stat().st_size:,} bytes).")


def _folder(sweep_id: str) -> Path:
    known = [
        path.parent for base in (paths.RESULTS, paths.ARCHIVES) if base.is_dir() for path in base.glob("*/sweep.json")
    ]
    for folder in (Path(sweep_id), *known):
        if (folder / "sweep.json").is_file() and (folder == Path(sweep_id) or folder.name == sweep_id):
            return folder
    raise ArchiveError(f"No sweep {sweep_id!r}. {suggestion(sweep_id, [folder.name for folder in known])}")
