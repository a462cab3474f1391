"""`tokenpeak init`: a working folder with a commented example of everything in it."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from tokenpeak import paths
from tokenpeak.cli import require_own_folders
from tokenpeak.errors import ExitStatus, InputError, NodeError, suggestion
from tokenpeak.files import write_atomically
from tokenpeak.own_place import require_working_folder
from tokenpeak.paths import is_name
from tokenpeak.sweep.inventory.nodes import inventory_names
from tokenpeak.terminal import echo, echo_lines

_SWEEPS = ("quick", "rates", "presets-model-context")
"""Sweeps for any inventory."""
_SWEEP_SCHEMA, _VARIABLES_SCHEMA = "sweep.schema.json", "group_vars.schema.json"

_GITIGNORE = """/results/
/exported/
/site/build/
/site/.build*
"""

_README = """# A working folder of TokenPeak

Commands that are run here or in a folder below work on what lies here.

- `inventory/NAME/`: your GPU nodes (`hosts.yml`), and what they have in common (`group_vars/all.yml`). `sim` is four
  simulated nodes on this computer; the others are examples to put your nodes into, or to copy under a name of yours.
- `sweeps/NAME.yml`: what is tried, under what load, and what is best.
- `results/`: an archive for each sweep. `site/build/`: the site made of them.

```sh
tokenpeak demo                         # a sweep of the simulated nodes, with a site
tokenpeak check                        # is what I wrote right? Contacts no node
tokenpeak probe --inventory {first}
tokenpeak plan --inventory {first}
tokenpeak sweep --inventory {first}
```
"""
_DEMO = "sim"
"""The demonstration's inventory."""
_FOLDER = Path("tokenpeak-demo")
"""Where the demonstration goes when it is started outside of a working folder."""


@click.command(short_help="Make a working folder with commented examples.")
@click.argument("words", nargs=-1, metavar="[NAME | HOST...]", help="The folder; with --probe, the hosts to look at.")
@click.option(
    "--like",
    "examples",
    multiple=True,
    default=("h100",),
    show_default=True,
    metavar="GPU",
    help="Example inventory to begin with: v100, l40s, rtx4090, mi300x, …; may be given more than once.",
)
@click.option(
    "--probe", "is_probe", is_flag=True, help="Write an inventory of each HOST ([USER@]HOST, as ssh takes it)."
)
@click.option("--inventory", "inventory_name", default="nodes", show_default=True, help="Name of that inventory.")
@click.option("--port", default=8000, show_default=True, help="Where production answers on those hosts.")
def init(words: tuple[str, ...], examples: tuple[str, ...], inventory_name: str, port: int, *, is_probe: bool) -> None:
    """Make the folder NAME (default: the current one) a working folder; what is there already stays as it is.

    With --probe, look at each HOST over SSH and write an inventory of what is found there: boards, engine, what
    production is (a systemd unit, a container, a Compose service, a process) and its model. Nothing is changed or
    left on the hosts. It goes into the working folder around, or makes the current folder one.
    """
    if is_probe:
        _write_found(words, inventory_name, port)
        return
    if len(words) > 1:
        raise click.UsageError(f"Give one folder, or --probe to look at the hosts {', '.join(words)}.")
    name = Path(words[0] if words else ".")
    make_folder(name, examples)
    go = "" if name == Path() else f"cd {name} && "
    own = f", or put your nodes into {name / 'inventory' / examples[0] / 'hosts.yml'}" if examples else ""
    echo(f"Next: {go}tokenpeak demo{own}")


def make_folder(name: Path, examples: tuple[str, ...]) -> None:
    """Make a folder a working folder with the inventories of these examples; what is there already stays as it is."""
    known = inventory_names(paths.EXAMPLE_INVENTORIES)
    for example in examples:
        if example not in known:
            raise InputError(f"No example inventory {example!r}. {suggestion(example, known)}")
    require_working_folder(name.absolute())
    for path, source in _files(tuple(dict.fromkeys(("sim", *examples)))):
        _put(name / path, source)
    (name / "results").mkdir(exist_ok=True)
    (name / "site").mkdir(exist_ok=True)


def _put(target: Path, source: Path | str) -> None:
    """Write a file, a copy or a text, unless it is there."""
    if target.exists():
        echo(f"kept     {target}")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, source.read_bytes() if isinstance(source, Path) else source, durable=False)
    echo(f"written  {target}")


def _write_found(hosts: tuple[str, ...], inventory_name: str, port: int) -> None:
    """Look at the hosts and write their inventory; ends with status 1 where one could not be looked at."""
    if not hosts:
        raise click.UsageError("Give the hosts: tokenpeak init --probe gpu-1 admin@gpu-2.")
    command = f"tokenpeak init --probe {' '.join(hosts)}"
    written = write_inventory(hosts, inventory_name, port, command)
    echo_lines(written.mistakes)
    echo(f"Next: look through {written.folder}, then tokenpeak probe --inventory {inventory_name}")
    if not written.is_whole:
        sys.exit(ExitStatus.ERROR)


@dataclass(frozen=True, kw_only=True)
class WrittenInventory:
    """An inventory as it was written."""

    folder: Path
    mistakes: list[str]
    """What a check finds in it: what a person has to settle before anything is launched or stopped."""
    is_whole: bool
    """Every host is in it."""


def write_inventory(
    hosts: tuple[str, ...],
    inventory_name: str,
    port: int,
    command: str,
    *,
    model: str | None = None,
    engine: str | None = None,
) -> WrittenInventory:
    """Look at the hosts and write their inventory.

    `command` is what it says that it was written by; `model` and `engine` replace what was found.
    """
    from tokenpeak.sweep.inventory.checks import inventory_mistakes
    from tokenpeak.sweep.inventory.first_inventory import default_sweep, first_inventory, summary
    from tokenpeak.sweep.inventory.survey import survey_hosts

    if not is_name(inventory_name):
        raise InputError(f"--inventory is {inventory_name!r}; give letters, digits, dots and dashes.")
    home = paths.HOME if (paths.HOME / "inventory").is_dir() else Path()
    require_working_folder(home.absolute())
    folder = home / "inventory" / inventory_name
    if folder.exists():
        raise InputError(f"{folder} is there already, and stays as it is. Name another one by --inventory.")
    surveyed = survey_hosts(list(dict.fromkeys(hosts)), port)
    answered = [(host, host.answer) for host in surveyed if host.answer is not None]
    for host, answer in answered:
        echo(f"{host.name}: {summary(answer)}")
    for host in surveyed:
        if host.problem is not None:
            echo(f"PROBLEM {host.name}: {host.problem}")
    if not answered:
        raise NodeError("No host could be looked at; nothing was written.")
    if home != paths.HOME or not (paths.HOME / "inventory").is_dir():
        make_folder(home, ())
    written_by = f"Written by `{command}`. Look through it."
    hosts_yml, shared = first_inventory([host for host, _ in answered], written_by, model=model, engine=engine)
    _put(folder / "hosts.yml", hosts_yml)
    _put(folder / "group_vars" / "all.yml", shared)
    for name in dict.fromkeys(default_sweep(answer.gpus) for _, answer in answered):
        if (home / "sweeps").is_dir() and not (home / "sweeps" / f"{name}.yml").exists():
            _put(home / "sweeps" / f"{name}.yml", paths.EXAMPLE_SWEEPS / f"{name}.yml")
    return WrittenInventory(
        folder=folder,
        mistakes=[str(mistake) for mistake in inventory_mistakes(folder)],
        is_whole=len(answered) == len(surveyed),
    )


def _files(inventories: tuple[str, ...]) -> Iterator[tuple[Path, Path | str]]:
    """Each file of the working folder, and what it is a copy of, or its text."""
    sweeps = dict.fromkeys(_SWEEPS)
    for inventory in inventories:
        folder = paths.EXAMPLE_INVENTORIES / inventory
        for source in sorted(path for path in folder.rglob("*.yml")):
            yield Path("inventory") / source.relative_to(paths.EXAMPLE_INVENTORIES), source
            sweeps |= dict.fromkeys(_default_sweeps(source))
        # `a100x8-llama70b` is for a100, and not for a10.
        sweeps |= dict.fromkeys(path.stem for path in sorted(paths.EXAMPLE_SWEEPS.glob(f"{inventory}[-x]*.yml")))
    for name in sweeps:
        yield Path("sweeps") / f"{name}.yml", paths.EXAMPLE_SWEEPS / f"{name}.yml"
    # Named in the first line of each sweep and of each group_vars/all.yml, for editors.
    yield Path("sweeps") / _SWEEP_SCHEMA, paths.EXAMPLE_SWEEPS / _SWEEP_SCHEMA
    yield Path("inventory") / _VARIABLES_SCHEMA, paths.EXAMPLE_INVENTORIES / _VARIABLES_SCHEMA
    yield Path("README.md"), _README.format(first=inventories[-1])
    yield Path(".gitignore"), _GITIGNORE


def _default_sweeps(source: Path) -> Iterator[str]:
    for line in source.read_text().splitlines():
        key, _, value = line.partition(": ")
        if key == "tokenpeak_default_sweep":
            yield value.strip()


def begin_again(*words: str) -> NoReturn:
    """Run these words of `tokenpeak` in place of this process: which folder is worked in is settled on import."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-c", "from tokenpeak.cli import main; main()", *words])  # noqa: S606


@click.command(short_help="Sweep simulated nodes on this computer; ends with a site.")
@click.option("--end", "is_end", is_flag=True, help="End the simulated servers that a demonstration leaves running.")
@click.pass_context
def demo(ctx: click.Context, *, is_end: bool) -> None:
    """Sweep four simulated nodes on this computer; results are marked as simulated everywhere.

    Works in the working folder; outside of one, it makes the folder tokenpeak-demo. The simulated servers go on running
    on loopback addresses, as production should; --end ends them.
    """
    if is_end:
        from tokenpeak.sim.install import end
        from tokenpeak.sweep.inventory.nodes import Resolution, hosts_path, nodes_by_name

        end([node.name for node in nodes_by_name(_DEMO, Resolution(hosts_path(_DEMO))).nodes])
        return
    if paths.IS_INSTALLED and paths.INVENTORIES == paths.EXAMPLE_INVENTORIES:
        make_folder(_FOLDER, ())
        os.environ.pop("TOKENPEAK_HOME", None)
        os.chdir(_FOLDER)
        begin_again("demo")
    require_own_folders()
    from tokenpeak.cli.sweep import sweep

    ctx.invoke(sweep, inventory_name=_DEMO, with_report=True)
    echo("The simulated servers go on running; tokenpeak demo --end ends them.")
