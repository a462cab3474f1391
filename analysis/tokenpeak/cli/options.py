"""Options that several commands have, and what a shell evaluates to complete commands and options."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import get_completion_class

from tokenpeak.errors import SpecError, suggestion
from tokenpeak.own_place import require_unmoved
from tokenpeak.paths import shipped
from tokenpeak.terminal import echo_text

if TYPE_CHECKING:
    from tokenpeak.sweep.inventory.nodes import Inventory


_SHELLS = ("bash", "zsh", "fish")


class _ArchivePath(click.Path):
    """A folder, a packed archive, or the name of a shipped one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(shipped(value), param, ctx)


ARCHIVE = _ArchivePath(path_type=Path)
ARCHIVE_THERE = _ArchivePath(exists=True, path_type=Path)
_Command = TypeVar("_Command", bound=Callable[..., Any])
_Decorator = Callable[[_Command], _Command]
NODES = click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
"""`--node NAME …` as `nodes`."""
_WAY_OUT = "Run it as that user, or write to a folder of root's own."


@click.command(short_help="Print the completion of bash, zsh or fish.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL evaluates to complete commands, options and files.

    \b
    bash   eval "$(tokenpeak completion bash)" in ~/.bashrc
    zsh    eval "$(tokenpeak completion zsh)" in ~/.zshrc, after compinit
    fish   tokenpeak completion fish | source in ~/.config/fish/config.fish
    """  # noqa: D301 — click keeps the lines below a backspace as they are
    made = get_completion_class(shell)
    assert made is not None
    echo_text(made(ctx.find_root().command, {}, "tokenpeak", "_TOKENPEAK_COMPLETE").source())


def inventory(words: str, **attributes: Any) -> _Decorator[Any]:
    """`--inventory NAME` as `inventory_name`; `sim` when absent, unless `attributes` say otherwise."""
    given = attributes or {"default": "sim", "show_default": True}
    return click.option("--inventory", "inventory_name", help=words, **given)


def sweep_of(inventory: "Inventory", name: str | None) -> str:
    """The sweep that was named, else the inventory's own; SpecError where there is neither."""
    from tokenpeak.spec.sweep import sweep_names

    if sweep := name or inventory.default_sweep:
        return sweep
    raise SpecError(f"Inventory {inventory.name} names no default sweep; give --sweep. {suggestion('', sweep_names())}")


def style(default: str = "table", words: str = "For people or for machines.") -> _Decorator[Any]:
    """`--format`: `default` or `json`, as `style`."""
    choice = click.Choice([default, "json"])
    return click.option("--format", "style", type=choice, default=default, show_default=True, help=words)


class OutputPath(click.Path):
    """A path that is written to; nobody else may lead it elsewhere."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; InputError for a place of another user's."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        require_unmoved(path, "output", _WAY_OUT)
        return path


OUTPUT = OutputPath(path_type=Path)


class OutputFile(OutputPath):
    """A file that is written to; its folder is there, so that nothing is measured in vain."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a usage error where its folder does not exist."""
        path = super().convert(value, param, ctx)
        if not path.parent.is_dir():
            self.fail(f"the folder {path.parent} does not exist.", param, ctx)
        return path


OUTPUT_FILE = OutputFile(dir_okay=False, path_type=Path)


def make_output_folder(folder: Path) -> None:
    """Make a folder of output; InputError where somebody else was faster, in a folder such as /tmp."""
    folder.mkdir(parents=True, exist_ok=True)
    require_unmoved(folder, "output", _WAY_OUT)
