"""`tokenpeak check`: mistakes in sweeps and inventories, and what a server's definition says; contacts no node."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.errors import ExitStatus, InputError, PlanError, suggestion
from tokenpeak.spec.mistakes import Mistake
from tokenpeak.spec.sweep import sweep_names
from tokenpeak.sweep.inventory.nodes import inventory_names
from tokenpeak.terminal import echo, echo_lines, echo_text
from tokenpeak.vllm.flags import DEFAULT_RELEASE


@click.command(short_help="Find mistakes in sweeps and inventories.")
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    help="Sweeps, files or folders of inventories, the names of either, or definitions of servers; all of ours when "
    "absent.",
)
def check(files: tuple[str, ...]) -> None:
    """Find mistakes in each FILE: a sweep, a file or folder of an inventory, or the name of either; by default in all.

    Prints FILE:LINE: MISTAKE, and what to write instead. Exit status 2 when there is one. No node is contacted. Of a
    Compose file, a Kubernetes manifest, a systemd unit or a script it prints which flags its vLLM gets, as a baseline
    has them. A line with NOTE in front says what a sweep cannot show; it is no mistake.
    """
    # Imported here: data sets need Polars, which takes a second that --help should not cost.
    from tokenpeak.sweep.check_spec import spec_mistakes, spec_notes
    from tokenpeak.sweep.inventory.checks import inventory_mistakes, missing_variables

    others, servers = [], 0
    for name in files:
        if (found := _servers(Path(name))) is None:
            others.append(name)
            continue
        servers += 1
        echo_lines(found)
    if servers and not others:
        return
    sweeps, inventories = _all() if not files else _given(tuple(others))
    mistakes = [each for path in sweeps for each in spec_mistakes(path)]
    for folder in inventories:
        # A variable whose name is mistyped is one mistake, and not a missing one too.
        mistakes += inventory_mistakes(folder) or missing_variables(folder)
    echo_lines(map(str, mistakes))
    echo_lines(f"NOTE {note}" for path in sweeps for note in spec_notes(path))
    looked = f"{_count(len(sweeps), 'sweep', 'sweeps')}, {_count(len(inventories), 'inventory', 'inventories')}"
    echo(f"{looked}: {_count(len(mistakes), 'mistake', 'mistakes') if mistakes else 'no mistake found'}")
    if mistakes:
        sys.exit(ExitStatus.USAGE)


def _servers(path: Path) -> list[str] | None:
    """What a definition of servers says of each, a line each; None for a file that is none."""
    from tokenpeak.plan.baseline import parse_arguments
    from tokenpeak.plan.definition import definitions

    found = definitions(path) if path.is_file() and _inventory_around(path) is None else None
    if found is None:
        return None
    lines = []
    for each in found:
        try:
            model, flags = parse_arguments(each.arguments, DEFAULT_RELEASE)
        except PlanError as error:
            lines.append(f"{path}: {each.place}: no baseline: {error}")
            continue
        shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in flags.items()) or "no flag"
        lines.append(f"{path}: {each.place}: {model or 'a model that its command does not name'}: {shown}")
    return lines or [f"{path}: no server of vLLM is defined there."]


def refuse(mistakes: Iterable[Mistake]) -> None:
    """Raise InputError that lists the mistakes, if there is one."""
    if lines := [str(each) for each in mistakes]:
        raise InputError("\n  ".join([f"{_count(len(lines), 'mistake', 'mistakes')} in what was written:", *lines]))


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _all() -> tuple[list[Path], list[Path]]:
    sweeps = [paths.SWEEPS / f"{name}.yml" for name in sweep_names()]
    return sweeps, [paths.INVENTORIES / name for name in inventory_names()]


def _given(files: tuple[str, ...]) -> tuple[list[Path], list[Path]]:
    """The sweeps and the inventories' folders that are meant; InputError for what is neither."""
    sweeps, inventories = [], []
    for name in files:
        path = Path(name)
        if folder := _inventory_around(path):
            inventories.append(folder)
        elif path.is_file():
            sweeps.append(path)
        elif name.removesuffix(".yml") in sweep_names():
            sweeps.append(paths.SWEEPS / f"{name.removesuffix('.yml')}.yml")
        elif name in inventory_names():
            inventories.append(paths.INVENTORIES / name)
        else:
            known = [*sweep_names(), *inventory_names()]
            raise InputError(f"{name!r} is no file, no sweep and no inventory. {suggestion(name, known)}")
    return sweeps, list(dict.fromkeys(inventories))


def _inventory_around(path: Path) -> Path | None:
    """The inventory's folder that a path is, or lies in."""
    if not path.exists():
        return None
    return next((folder for folder in (path, *path.absolute().parents[:3]) if (folder / "hosts.yml").is_file()), None)


@click.command(short_help="Print the JSON Schema of a kind of file.")
@click.argument("kind", type=click.Choice(["sweep", "inventory", "workload"]), help="Which kind of file.")
def schema(kind: str) -> None:
    """Print the JSON Schema of a KIND of file: a sweep, an inventory's variables, or a workload.

    Examples name theirs in their first line, where editors with a YAML language server find it.
    """
    from tokenpeak.spec import schema as spec_schema
    from tokenpeak.sweep.check_spec import sweep_schema
    from tokenpeak.sweep.inventory.schema import inventory_schema

    document = {"sweep": sweep_schema, "inventory": inventory_schema, "workload": spec_schema.schema}[kind]()
    echo_text(json.dumps(document, indent=1, ensure_ascii=False))
