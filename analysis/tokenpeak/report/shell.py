"""An IPython shell in this process whose displayed outputs are collected as notebook outputs."""

import atexit
import contextlib
import io
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import nbformat
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tokenpeak.report.display import BLOCK_MIME

# IPython and nbformat have types for the parts around these, and none for these.
_output: Any = nbformat.v4.new_output
_QUIET = Config({"HistoryManager": {"enabled": False}})


def _displayed(kind: str, data: Any, metadata: Any, **more: Any) -> Any:
    """A displayed bundle as a notebook output. Its block stays as it is: nbformat would copy each cell of a table."""
    block = data.get(BLOCK_MIME)
    found = _output(kind, data=data if block is None else {**data, BLOCK_MIME: {}}, metadata=metadata or {}, **more)
    if block is not None:
        dict.__setitem__(found.data, BLOCK_MIME, block)
    return found


class _Publisher(DisplayPublisher):
    """Collects what a cell displays."""

    collected: list[Any]

    def publish(self, data: Any, metadata: Any = None, source: Any = None, **_: Any) -> None:
        """Keep the bundle as a notebook output."""
        self.collected.append(_displayed("display_data", data, metadata))


class _Hook(DisplayHook):
    """Collects a cell's last value."""

    collected: list[Any]

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        """Keep the bundle as a notebook output."""
        self.collected.append(_displayed("execute_result", format_dict, md_dict, execution_count=self.prompt_count))

    def write_output_prompt(self) -> None:
        """Nothing: a notebook numbers its own outputs."""

    def finish_displayhook(self) -> None:
        """Nothing to end on a terminal."""


class _Shell(InteractiveShell):
    """A shell without a terminal: a cell's error goes into its outputs and nowhere else."""

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: `Cells.run` writes the error into the cell."""


# Their constructors have no types in IPython.
_PUBLISHER: Any = _Publisher
_HOOK: Any = _Hook


class Cells:
    """Runs cells one after the other in one namespace."""

    def __init__(self, shell: Any, collected: list[Any]) -> None:
        self._shell = shell
        self._collected = collected
        self._count = 0

    def run(self, cell: Any) -> bool:
        """Run a code cell and give it its outputs; false when it raised, the error being its last output."""
        self._collected.clear()
        self._count += 1
        printed, terminal = io.StringIO(), sys.stdin
        # Nobody is there to answer a cell that asks.
        sys.stdin = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                result = self._shell.run_cell(cell.source)
        finally:
            sys.stdin = terminal
        text = printed.getvalue()
        cell.execution_count = self._count
        cell.outputs = [*([_output("stream", text=text)] if text else []), *self._collected]
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return True
        lines = traceback.format_exception(error)
        cell.outputs.append(_output("error", ename=type(error).__name__, evalue=str(error), traceback=lines))
        return False


@contextlib.contextmanager
def fresh_cells() -> Iterator[Cells]:
    """A namespace of its own for one notebook."""
    shell: Any = _Shell.instance(config=_QUIET, user_ns={})
    collected: list[Any] = []
    shell.display_pub = _PUBLISHER(shell=shell)
    # A hook that remembers results collects garbage each time that it forgets them: half a second of a large heap.
    shell.displayhook = shell.display_trap.hook = _HOOK(shell=shell, cache_size=0)
    shell.display_pub.collected = shell.displayhook.collected = collected
    try:
        yield Cells(shell, collected)
    finally:
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()
        _Shell.clear_instance()
