"""Paths of options that say where a command writes."""

import os
from pathlib import Path
from typing import Any

import click

from tokenpeak.own_place import require_unmoved

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
