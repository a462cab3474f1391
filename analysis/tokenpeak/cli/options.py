"""Options that several commands have, and what a shell evaluates to complete commands, options and names."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from tokenpeak import paths
from tokenpeak.cli import require_own_folders
from tokenpeak.errors import SpecError, TokenpeakError, suggestion
from tokenpeak.names import is_name
from tokenpeak.own_place import require_unmoved
from tokenpeak.terminal import echo_text

if TYPE_CHECKING:
    from tokenpeak.sweep.inventory.nodes import Inventory


_SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the completion of bash, zsh or fish.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL evaluates to complete commands, options, and names of inventories, sweeps and archives.

    \b
    bash   eval "$(tokenpeak completion bash)" in ~/.bashrc
    zsh    eval "$(tokenpeak completion zsh)" in ~/.zshrc, after compinit
    fish   tokenpeak completion fish | source in ~/.config/fish/config.fish
    """  # noqa: D301 — click keeps the lines below a backspace as they are
    made = get_completion_class(shell)
    assert made is not None
    echo_text(made(ctx.find_root().command, {}, "tokenpeak", "_TOKENPEAK_COMPLETE").source())


class Name(click.ParamType[str]):
    """A text that is one of the names there are; what is typed is not checked here."""

    name = "text"

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin as what is typed."""
        return [CompletionItem(name) for name in self._known() if name.startswith(incomplete) and is_name(name)]


class ArchivePath(click.Path):
    """A path of an archive, or of a file or folder of any."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The paths of archives that begin as what is typed, else files."""
        found = [path for path in map(_shown, _archives()) if path.startswith(incomplete) and _is_plain(path)]
        # Names of files are the shell's own to list, which quotes them.
        return [CompletionItem(path) for path in found] or super().shell_complete(ctx, param, incomplete)


def _is_own() -> bool:
    """Whether the working folder is one that commands work in."""
    try:
        require_own_folders()
    except (TokenpeakError, OSError):
        return False
    return True


def _is_plain(path: str) -> bool:
    return all(part == os.sep or is_name(part) for part in Path(path).parts)


def _inventories() -> list[str]:
    from tokenpeak.sweep.inventory.nodes import inventory_names

    return inventory_names(paths.INVENTORIES) if _is_own() else []


def _examples() -> list[str]:
    from tokenpeak.sweep.inventory.nodes import inventory_names

    return inventory_names(paths.EXAMPLE_INVENTORIES)


def _sweeps() -> list[str]:
    return sorted(path.stem for path in paths.SWEEPS.glob("*.yml")) if _is_own() else []


def _archives() -> list[Path]:
    """The archives of results/, newest first."""
    return sorted((path.parent for path in paths.RESULTS.glob("*/sweep.json")), reverse=True) if _is_own() else []


def _interrupted() -> list[str]:
    """The sweeps of results/ that were not completed: those that can be gone on with."""
    return [path.name for path in _archives() if not _is_completed(path / "end.json")]


def _is_completed(end: Path) -> bool:
    """Whether a sweep's end says so, or is no file that a sweep writes."""
    from tokenpeak import bounded

    if not os.path.lexists(end):
        return False
    try:
        return end.is_symlink() or b'"completed"' in bounded.read_bytes(end, bounded.MEGABYTE)
    except TokenpeakError:
        return True


def _shown(path: Path) -> str:
    """A path as it is typed from the current folder."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


INVENTORY = Name(_inventories)
EXAMPLE = Name(_examples)
SWEEP = Name(_sweeps)
SWEEP_ID = Name(lambda: [path.name for path in _archives()])
INTERRUPTED = Name(_interrupted)
CHECKED = Name(lambda: [*_sweeps(), *_inventories()])
ARCHIVE = ArchivePath(path_type=Path)
ARCHIVE_THERE = ArchivePath(exists=True, path_type=Path)


_Command = TypeVar("_Command", bound=Callable[..., Any])
_Decorator = Callable[[_Command], _Command]


def inventory(words: str, **attributes: Any) -> _Decorator[Any]:
    """`--inventory NAME` as `inventory_name`; `sim` when absent, unless `attributes` say otherwise."""
    given = attributes or {"default": "sim", "show_default": True}
    return click.option("--inventory", "inventory_name", type=INVENTORY, help=words, **given)


def sweep_of(inventory: "Inventory", name: str | None) -> str:
    """The sweep that was named, else the inventory's own; SpecError where there is neither."""
    from tokenpeak.spec.sweep import sweep_names

    if found := name or inventory.default_sweep:
        return found
    raise SpecError(f"Inventory {inventory.name} names no default sweep; give --sweep. {suggestion('', sweep_names())}")


NODES = click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
"""`--node NAME …` as `nodes`."""


def style(default: str = "table", words: str = "For people or for machines.") -> _Decorator[Any]:
    """`--format`: `default` or `json`, as `style`."""
    choice = click.Choice([default, "json"])
    return click.option("--format", "style", type=choice, default=default, show_default=True, help=words)


_WAY_OUT = "Run it as that user, or write to a folder of root's own."


class OutputPath(click.Path):
    """A path that is written to; nobody else may lead it elsewhere."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; InputError for a place of another user's."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        require_unmoved(path, "output", _WAY_OUT)
        return path


OUTPUT = OutputPath(path_type=Path)


def make_output_folder(folder: Path) -> None:
    """Make a folder of output; InputError where somebody else was faster, in a folder such as /tmp."""
    folder.mkdir(parents=True, exist_ok=True)
    require_unmoved(folder, "output", _WAY_OUT)
