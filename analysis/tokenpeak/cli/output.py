"""Paths of options that say where a command writes."""

import os
from pathlib import Path
from typing import Any

import click

from tokenpeak.own_place import require_unmoved


class OutputPath(click.Path):
    """A path that is written to; as root it must be nobody else's, who could lead it elsewhere."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; InputError for a place of another user's."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        require_unmoved(path, "output", "Run it as that user, or write to a folder of root's own.")
        return path


OUTPUT = OutputPath(path_type=Path)
