"""Console: tables and progress of rich, made safe for a terminal.

It is apart from `terminal` because rich takes long to import, and what restores production needs none of it.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from tokenpeak.node.machine.words import no_command, one_line
from tokenpeak.terminal import visible


class SafeConsole(Console):
    """rich's console, whose own control sequences pass and nobody else's; brackets in a text are no markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, **options})

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a text in one line, whatever words of others are in it."""
        super().print(*(one_line(each) if isinstance(each, str) else each for each in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The renderable's segments with safe text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(no_command(visible(segment.text)), segment.style)


class SafeTable(Table):
    """rich's table, whose rows have a line for each cell: none of them makes a row of its own."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row."""
        super().add_row(*(one_line(cell) if isinstance(cell, str) else cell for cell in cells), **options)
