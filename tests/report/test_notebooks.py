"""Notebooks: parameters that they declare, outputs that the site reads, errors that name the cell."""

import doctest
from datetime import timedelta
from pathlib import Path

import nbformat
import pytest

from archive_factory import START, make_archive
from tokenpeak import paths, report
from tokenpeak.errors import ReportError
from tokenpeak.report import view
from tokenpeak.report.notebooks import blocks, execute, parameters_of


def write(path: Path, *cells: str) -> Path:
    """A notebook whose first cell declares parameters."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, path)
    return path


@pytest.mark.parametrize("path", sorted(paths.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_notebook_takes_an_archive(path: Path) -> None:
    """Each page's notebook declares the parameter that the site gives it, and holds no markup."""
    assert "archive" in parameters_of(path)
    assert not any("</" in cell.source for cell in nbformat.read(path, as_version=4).cells)


def test_an_unknown_parameter_is_refused(tmp_path: Path) -> None:
    """A parameter that the notebook does not declare is an error with the nearest name."""
    path = write(tmp_path / "a.ipynb", "archive = ''")

    with pytest.raises(ReportError, match=r"no parameter 'archiv'. Did you mean archive\?"):
        execute(path, tmp_path / "out.ipynb", {"archiv": "x"})


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    """An error in a cell names the notebook, the cell and what happened, in one line without control characters."""
    path = write(tmp_path / "a.ipynb", "archive = ''", "1 + 1", "assert archive == 'y', f'not what was asked{archive}'")

    with pytest.raises(ReportError, match=r"a.ipynb, cell 4: AssertionError: not what was asked") as caught:
        execute(path, tmp_path / "out.ipynb", {"archive": "x\n\x1b[2J"})
    assert str(caught.value).isprintable()


def test_outputs_become_blocks_in_order(tmp_path: Path) -> None:
    """Displayed blocks and a cell's last value are read in the order that they were shown."""
    path = write(
        tmp_path / "a.ipynb",
        "archive = ''",
        "from tokenpeak.report.blocks import answer, note\ndisplay(answer(archive))\nnote('second')",
    )
    found = blocks(execute(path, tmp_path / "out.ipynb", {"archive": "first"}))

    assert [["first"], ["second"]] == [list(block["parts"]) for block in found]


def test_notebooks_share_no_names(tmp_path: Path) -> None:
    """What one notebook defines is not there in the next."""
    execute(write(tmp_path / "a.ipynb", "archive = ''", "leaked = 1"), tmp_path / "1.ipynb", {})

    with pytest.raises(ReportError, match="NameError"):
        execute(write(tmp_path / "b.ipynb", "archive = ''", "leaked"), tmp_path / "2.ipynb", {})


def test_documented_examples_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the documentation of open_archive shows is what a reader gets, from the project's folder."""
    monkeypatch.chdir(paths.ROOT)
    for module in (report, view):
        found = doctest.testmod(module)

        assert (0, True) == (found.failed, found.attempted > 0)


def test_a_folder_of_sweeps_stands_for_the_newest(tmp_path: Path) -> None:
    """A notebook opened as it is shows the newest sweep of the results."""
    for days, name in enumerate(("old", "new")):
        make_archive(
            tmp_path / name, gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3,
            started_at=START + timedelta(days=days),
        )  # fmt: skip

    assert "new" == report.open_archive(tmp_path).sweep_id
