"""Executing notebooks and reading what they show. The only module that imports papermill.

Papermill injects the parameters and writes the executed notebook. Its cells run in this process rather than in a
kernel each: a kernel costs about two seconds of imports a page, and the frames of a large sweep would be read again by
each. The same files run in Jupyter as they are.
"""

import atexit
import contextlib
import io
import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from tokenpeak.errors import ReportError, suggestion
from tokenpeak.report.blocks import BLOCK_MIME, VEGA_MIME

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import papermill
    from papermill.engines import Engine, papermill_engines
    from papermill.exceptions import PapermillExecutionError

ENGINE = "tokenpeak"


class _Publisher(DisplayPublisher):
    """Collects what a cell displays."""

    def __init__(self, outputs: list[Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.collected = outputs

    def publish(self, data: Any, metadata: Any = None, **_: Any) -> None:
        """Keep the bundle as a notebook output."""
        self.collected.append(nbformat.v4.new_output("display_data", data=data, metadata=metadata or {}))


class _Hook(DisplayHook):
    """Collects a cell's last value."""

    collected: list[Any]

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        """Keep the bundle as a notebook output."""
        self.collected.append(
            nbformat.v4.new_output(
                "execute_result", data=format_dict, metadata=md_dict or {}, execution_count=self.prompt_count
            )
        )

    def write_output_prompt(self) -> None:
        """Nothing: a notebook numbers its own outputs."""

    def finish_displayhook(self) -> None:
        """Nothing to end on a terminal."""


class SharedProcess(Engine):  # type: ignore[misc]
    """A papermill engine whose cells run in this process, in a namespace of their own."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **_: Any) -> None:
        """Run each code cell; the first that raises keeps its traceback and ends the notebook."""
        with _shell() as (shell, outputs):
            for index, cell in enumerate(nb_man.nb.cells):
                nb_man.cell_start(cell, index)
                if cell.cell_type == "code" and cell.source.strip():
                    outputs.clear()
                    printed = io.StringIO()
                    with contextlib.redirect_stdout(printed):
                        result = shell.run_cell(cell.source, store_history=True)
                    cell.execution_count = shell.execution_count - 1
                    cell.outputs = [
                        *([nbformat.v4.new_output("stream", text=printed.getvalue())] if printed.getvalue() else []),
                        *outputs,
                    ]
                    error = result.error_before_exec or result.error_in_exec
                    if error is not None:
                        cell.outputs.append(
                            nbformat.v4.new_output(
                                "error", ename=type(error).__name__, evalue=str(error), traceback=traceback.format_exception(error)
                            )
                        )
                        nb_man.cell_exception(cell, index)
                        return
                nb_man.cell_complete(cell, index)


@contextlib.contextmanager
def _shell() -> Iterator[tuple[InteractiveShell, list[Any]]]:
    """A fresh IPython shell whose displayed outputs land in the list."""
    outputs: list[Any] = []
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(user_ns={}, history_length=0)
    shell.history_manager.enabled = False
    shell.display_pub = _Publisher(outputs, shell=shell)
    shell.displayhook = _Hook(shell=shell)
    shell.displayhook.collected = outputs
    shell.display_trap.hook = shell.displayhook
    shell.showtraceback = lambda *args, **kwargs: None
    try:
        yield shell, outputs
    finally:
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()
        InteractiveShell.clear_instance()


papermill_engines.register(ENGINE, SharedProcess)
logging.getLogger("papermill").setLevel(logging.WARNING)


def parameters_of(notebook: Path) -> set[str]:
    """The names that the notebook's parameters cell declares."""
    return set(papermill.inspect_notebook(str(notebook)))


def execute(notebook: Path, output: Path, parameters: Mapping[str, Any]) -> Any:
    """The executed notebook, also written to `output`, in whose folder it runs.

    Raises ReportError for a parameter that the notebook does not declare, and for a cell that fails.
    """
    declared = parameters_of(notebook)
    for name in parameters:
        if name not in declared:
            raise ReportError(f"{notebook.name} declares no parameter {name!r}. {suggestion(name, declared)}")
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.chdir(output.parent):
            return papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=dict(parameters),
                engine_name=ENGINE,
                kernel_name="python3",
                progress_bar=False,
                log_output=False,
            )
    except PapermillExecutionError as error:
        raise ReportError(
            f"{notebook.name}, cell {error.exec_count}: {error.ename}: {error.evalue}\n{_where(error)}"
        ) from error


def _where(error: PapermillExecutionError) -> str:
    """The innermost lines of the failed cell's traceback."""
    lines = "".join(error.traceback).rstrip().splitlines()
    return "\n".join(lines[-6:])


def blocks(executed: Any) -> list[dict[str, Any]]:
    """What an executed notebook shows, in order: prose from its Markdown cells, and the blocks of its outputs.

    A figure's block has its Vega-Lite spec under `spec`.
    """
    found: list[dict[str, Any]] = []
    for cell in executed.cells:
        if cell.cell_type == "markdown":
            found.append({"kind": "prose", "text": cell.source})
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if BLOCK_MIME in data:
                block = dict(data[BLOCK_MIME])
                if VEGA_MIME in data:
                    block["spec"] = data[VEGA_MIME]
                found.append(block)
    return found
