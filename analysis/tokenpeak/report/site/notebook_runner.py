"""Executing notebooks and reading what they show. The only module that imports papermill.

Papermill injects the parameters and writes the executed notebook. Its cells run in this process rather than in a
kernel each: a kernel costs about two seconds of imports a page, and the frames of a large sweep would be read again by
each. The same files run in Jupyter as they are.
"""

import atexit
import contextlib
import io
import json
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
import polars as pl
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tokenpeak.errors import InputError, ReportError, suggestion
from tokenpeak.paths import shown
from tokenpeak.report.blocks import captioned
from tokenpeak.report.blocks.captioned import frame_bundle, printed_block, with_names
from tokenpeak.report.blocks.display import BLOCK_MIME
from tokenpeak.report.site.pages import declared

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
def fresh_cells(*, own: bool) -> Iterator[Cells]:
    """A namespace of its own for one notebook; in a user's `own`, frames are shown as the site's tables."""
    shell: Any = _Shell.instance(config=_QUIET, user_ns={})
    for frame in (pl.DataFrame, pl.LazyFrame, pl.Series) if own else ():
        shell.display_formatter.mimebundle_formatter.for_type(frame, frame_bundle)
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


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import papermill
    from papermill.engines import Engine, papermill_engines
    from papermill.exceptions import PapermillExecutionError
    from papermill.execute import raise_for_execution_errors

ENGINE, KERNEL, LANGUAGE = "tokenpeak", "python3", "python"
NOTEBOOK_METADATA = ("kernelspec", "language_info")
KERNEL_KEYS = ("display_name", "language", "name")
NOTEBOOK_ONLY = "notebook-only"
"""Tag of a cell that the notebook's reader sees, and the site's does not."""
INJECTED = "injected-parameters"
"""Papermill's tag of the cell that it adds."""
_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')


class SharedProcess(Engine):  # type: ignore[misc]
    """A papermill engine whose cells run in this process, each notebook in a namespace of its own."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, *, own: bool = False, **_: Any) -> None:
        """Run each code cell; the first that raises keeps its traceback and ends the notebook."""
        with fresh_cells(own=own) as cells:
            for cell in nb_man.nb.cells:
                # Papermill's own marks of a cell's start and end write the whole notebook each time.
                if cell.cell_type == "code" and cell.source.strip() and not cells.run(cell):
                    return


papermill_engines.register(ENGINE, SharedProcess)
logging.getLogger("papermill").setLevel(logging.WARNING)


def _literal(path: Path) -> str:
    """The path as papermill takes it, which fills in what stands in braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


def execute(notebook: Path, output: Path, parameters: Mapping[str, Any], *, own: bool = False) -> Any:
    """The executed notebook, also written to `output`, in whose folder it runs; `own` where it is a user's.

    Raises InputError for a parameter that the notebook does not declare or allow; ReportError for a cell that fails,
    and for a notebook that cannot be read.
    """
    known = declared(notebook)
    for name in parameters:
        if name not in known:
            raise InputError(f"{notebook.name} declares no parameter {name!r}. {suggestion(name, known)}")
    typed = {name: known[name].value(value) for name, value in parameters.items()}
    output = output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.chdir(output.parent), captioned.enable_charts():
            # Papermill copies and writes a notebook several times over; with outputs in it, that takes longer than the
            # cells. So it prepares one without outputs, and the executed one is written once, below.
            prepared = _prepared(notebook, typed)
            executed = papermill_engines.execute_notebook_with_engine(
                ENGINE, prepared, KERNEL, progress_bar=False, own=own
            )
            raise_for_execution_errors(executed, None)
    except PapermillExecutionError as error:
        raise ReportError(
            f"{notebook.name}, cell {error.exec_count}: {error.ename}: {shown(error.evalue, 300)[1:-1]}{_where(error)}."
        ) from error
    _forget_machine(executed)
    output.write_text(json.dumps(executed, ensure_ascii=False) + "\n")
    return executed


def _prepared(notebook: Path, parameters: Mapping[str, Any]) -> Any:
    """The notebook with its parameters filled in; ReportError where it is none that nbformat and papermill know."""
    try:
        prepared = papermill.execute_notebook(
            _literal(notebook),
            None,
            parameters=parameters,
            engine_name=ENGINE,
            kernel_name=KERNEL,
            language=LANGUAGE,
            prepare_only=True,
            progress_bar=False,
        )
    except Exception as error:
        # Neither has a kind of error of its own for a file that is JSON and no notebook.
        raise ReportError(
            f"{notebook.name} is no notebook that can be run ({type(error).__name__}: {shown(str(error), 200)[1:-1]}). "
            "Open it in Jupyter and save it again."
        ) from error
    for cell in prepared.cells:
        # Papermill's is random, and the same archive is to give the same notebook.
        if INJECTED in cell.metadata.get("tags", []):
            cell["id"] = INJECTED
    return prepared


def _forget_machine(executed: Any) -> None:
    """Leave of the metadata what Jupyter needs; papermill's says where the notebook lay and was written."""
    kept = {key: executed.metadata[key] for key in NOTEBOOK_METADATA if key in executed.metadata}
    if "kernelspec" in kept:
        kept["kernelspec"] = {key: kept["kernelspec"][key] for key in KERNEL_KEYS if key in kept["kernelspec"]}
    executed.metadata.clear()
    executed.metadata.update(kept)
    for cell in executed.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata.clear()
        if tags:
            cell.metadata["tags"] = tags


def _where(error: PapermillExecutionError) -> str:
    """The file and line that raised, in brackets; empty where the traceback names none."""
    places = _PLACE.findall("".join(error.traceback))
    return f" ({shown(Path(places[-1][0]).name)[1:-1]}, line {places[-1][1]})" if places else ""


def blocks(executed: Any, *, own: str = "") -> list[dict[str, Any]]:
    """Blocks of an executed notebook, in order: prose from its Markdown cells, and the blocks of its outputs.

    Of a user's `own` notebook, given by its page's title, printed text and all prose too, but for a heading that the
    page has already. Else prose that announces nothing is left out. Cells tagged `notebook-only` show nothing here.
    """
    found: list[dict[str, Any]] = []
    for cell in executed.cells:
        if NOTEBOOK_ONLY in cell.metadata.get("tags", []):
            continue
        if cell.cell_type == "markdown":
            first, _, rest = cell.source.partition("\n")
            is_title = bool(own) and not found and first.startswith("# ")
            if text := rest if is_title else cell.source:
                found.append({"kind": "prose", "text": text})
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if BLOCK_MIME in data:
                found.append(dict(data[BLOCK_MIME]))
            elif own and (block := printed_block(output)):
                found.append(block)
    if own:
        return with_names(found, own)
    kinds = [block["kind"] for block in found] + ["prose"]
    return [block for index, block in enumerate(found) if (block["kind"], kinds[index + 1]) != ("prose", "prose")]
