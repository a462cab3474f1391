"""`tokenpeak init`: a working folder with a commented example of everything in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.errors import InputError, suggestion
from tokenpeak.sweep.resolution import inventory_names
from tokenpeak.terminal import echo

_SWEEPS = ("quick", "rates")
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


@click.command(short_help="Make a working folder with commented examples.")
@click.argument("name", default=".", type=click.Path(path_type=Path))
@click.option(
    "--like",
    "examples",
    multiple=True,
    default=("h100",),
    show_default=True,
    metavar="GPU",
    help="Example inventory to begin with: v100, l40s, mi210, …; may be given more than once.",
)
def init(name: Path, examples: tuple[str, ...]) -> None:
    """Make the folder NAME (default: the current one) a working folder; what is there already stays as it is."""
    known = inventory_names(paths.EXAMPLE_INVENTORIES)
    for example in examples:
        if example not in known:
            raise InputError(f"No example inventory {example!r}. {suggestion(example, known)}")
    for path, source in _files(tuple(dict.fromkeys(("sim", *examples)))):
        target = name / path
        if target.exists():
            echo(f"kept     {target}")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, Path):
            shutil.copyfile(source, target)
        else:
            target.write_text(source)
        echo(f"written  {target}")
    (name / "results").mkdir(exist_ok=True)
    (name / "site").mkdir(exist_ok=True)
    go = "" if name == Path() else f"cd {name} && "
    own = f", or put your nodes into {name / 'inventory' / examples[0] / 'hosts.yml'}" if examples else ""
    echo(f"Next: {go}tokenpeak demo{own}")


def _files(inventories: tuple[str, ...]) -> Iterator[tuple[Path, Path | str]]:
    """Each file of the working folder, and what it is a copy of, or its text."""
    sweeps = dict.fromkeys(_SWEEPS)
    for inventory in inventories:
        folder = paths.EXAMPLE_INVENTORIES / inventory
        for source in sorted(path for path in folder.rglob("*.yml")):
            yield Path("inventory") / source.relative_to(paths.EXAMPLE_INVENTORIES), source
            sweeps |= dict.fromkeys(_default_sweeps(source))
    for sweep in sweeps:
        yield Path("sweeps") / f"{sweep}.yml", paths.EXAMPLE_SWEEPS / f"{sweep}.yml"
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
