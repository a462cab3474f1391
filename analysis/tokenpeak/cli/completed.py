"""Values that a shell completes: names of inventories, sweeps and archives of the working folder."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tokenpeak import paths


class Name(click.ParamType[str]):
    """A text that is one of the names there are; what is typed is not checked here."""

    name = "text"

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin as what is typed."""
        return [CompletionItem(name) for name in self._known() if name.startswith(incomplete)]


class ArchivePath(click.Path):
    """A path of an archive, or of a file or folder of any."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The paths of archives that begin as what is typed, else files."""
        found = [path for path in map(_shown, _archives()) if path.startswith(incomplete)]
        return [CompletionItem(path) for path in found] or super().shell_complete(ctx, param, incomplete)


def _inventories() -> list[str]:
    from tokenpeak.sweep.resolution import inventory_names

    return inventory_names()


def _examples() -> list[str]:
    from tokenpeak.sweep.resolution import inventory_names

    return inventory_names(paths.EXAMPLE_INVENTORIES)


def _sweeps() -> list[str]:
    return sorted(path.stem for path in paths.SWEEPS.glob("*.yml"))


def _archives() -> list[Path]:
    """The archives of results/, newest first."""
    return sorted((path.parent for path in paths.RESULTS.glob("*/sweep.json")), reverse=True)


def _interrupted() -> list[str]:
    """The sweeps of results/ that were not completed: those that can be gone on with."""
    return [path.name for path in _archives() if b'"completed"' not in _end(path)]


def _end(archive: Path) -> bytes:
    try:
        return (archive / "end.json").read_bytes()
    except OSError:
        return b""


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
