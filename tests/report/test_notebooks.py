"""Notebooks: parameters that they declare, outputs that the site reads, errors that name the cell."""

import ast
from datetime import timedelta
from pathlib import Path

import nbformat
import polars as pl
import pytest

from archive_factory import START, make_archive
from tokenpeak import paths
from tokenpeak.errors import ArchiveError, InputError, ReportError
from tokenpeak.report import open_archive, open_archives, opening, rank
from tokenpeak.report.load.rates import highest_rates, open_runs
from tokenpeak.report.site.notebook_runner import blocks, execute
from tokenpeak.report.site.pages import SWEEP_PAGES, declared
from tokenpeak.spec.parameters import UNITS


def write(path: Path, *cells: str) -> Path:
    """A notebook whose first cell declares parameters."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, path)
    return path


PAGES = sorted(page.notebook for page in SWEEP_PAGES if page.notebook)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_takes_the_parameters_of_an_analysis(path: Path) -> None:
    """Each is declared with its unit and given to `open_archive`; no other cell uses its name for something else."""
    sources = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    nodes = [node for source in sources[1:] for node in ast.walk(ast.parse(source))]
    opening = next(node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "open_archive")
    others = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    others |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    found = declared(path)

    assert [*UNITS] == [name for name in found if name in UNITS]
    assert [*UNITS] == [keyword.arg for keyword in opening.keywords]
    assert [*UNITS] == [keyword.value.id for keyword in opening.keywords if isinstance(keyword.value, ast.Name)]
    assert set() == others & {*found}
    for name, unit in UNITS.items():
        assert unit.partition(",")[0] in found[name].comment


DECLARED = """
archive = "../results"  # a folder, a packed archive
price_per_hour: float = 2.5  # USD per node-hour, > 0
nodes: int = 1  # nodes, ≥ 1
kinds: list[str] = []  # of GPUs
spare: bool = True
limit_s: float = None  # seconds
"""


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("price_per_hour", "3", 3.0),
        ("nodes", "4", 4),
        ("kinds", "H100, A100", ["H100", "A100"]),
        ("spare", "no", False),
        ("limit_s", "0.5", 0.5),
        ("archive", "x", "x"),
    ],
)
def test_a_given_text_becomes_the_declared_type(tmp_path: Path, name: str, given: str, value: object) -> None:
    """The command line gives text; the notebook gets what its parameters cell declares."""
    found = declared(write(tmp_path / "a.ipynb", DECLARED))[name].value(given)

    assert (type(value), value) == (type(found), found)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (
            "price_per_hour",
            "cheap",
            r"price_per_hour is 'cheap'. It must be a finite number \(USD per ",
        ),
        ("nodes", "1.5", "a whole number"),
        ("spare", "perhaps", "true or false"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(tmp_path: Path, name: str, given: str, said: str) -> None:
    """A value of another type is an input error that gives what is allowed."""
    with pytest.raises(InputError, match=said):
        declared(write(tmp_path / "a.ipynb", DECLARED))[name].value(given)


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    """An error in a cell names the notebook, the cell and what happened, in one line without control characters."""
    path = write(tmp_path / "a.ipynb", "archive = ''", "1 + 1", "assert archive == 'y', f'not what was asked{archive}'")

    with pytest.raises(ReportError, match=r"a.ipynb, cell 4: AssertionError: not what was asked") as caught:
        execute(path, tmp_path / "out.ipynb", {"archive": "x\n\x1b[2J"})
    assert str(caught.value).isprintable()


def test_a_cell_for_the_notebook_alone_is_not_on_the_page(tmp_path: Path) -> None:
    """Prose and outputs of cells with the tag stay in the executed notebook; a page of a user leaves them out too."""
    path = write(tmp_path / "a.ipynb", "archive = ''", "from tokenpeak.report.blocks.block import note\nnote('unseen')")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].metadata["tags"] = ["notebook-only"]
    notebook.cells.append(nbformat.v4.new_markdown_cell("unseen prose", metadata={"tags": ["notebook-only"]}))
    nbformat.write(notebook, path)
    executed = execute(path, tmp_path / "out.ipynb", {})

    assert [] == blocks(executed) == blocks(executed, own="Seen")
    assert "unseen" in (tmp_path / "out.ipynb").read_text()


def test_results_without_an_archive_stand_for_a_shipped_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the folder is empty or missing, and one line says which is shown; no other folder stands for anything."""
    (tmp_path / "results").mkdir()
    found = [open_archive(tmp_path / "results"), *open_archives(tmp_path / "other" / "results")]
    said = capsys.readouterr().out.splitlines()

    assert [open_archive(opening.EXAMPLE).sweep_id] * 2 == [sweep.sweep_id for sweep in found]
    assert [True, True] == [opening.EXAMPLE.name in line for line in said]
    with pytest.raises(ArchiveError, match="No archive at"):
        open_archive(tmp_path / "reslts")


def test_an_archive_that_cannot_be_read_is_left_out_of_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One whose record is broken, and the newest, whose end is: a line each. Alone it is an error."""
    make_archive(tmp_path / "good", axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=2)
    late = START + timedelta(days=1)
    make_archive(tmp_path / "late", axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=2, started_at=late)
    (tmp_path / "late" / "end.json").write_text("{")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sweep.json").write_text("{")
    newest, several = open_archive(tmp_path), open_archives(tmp_path)
    said = capsys.readouterr().out.splitlines()

    assert ["good"] == [sweep.sweep_id for sweep in several] == [newest.sweep_id]
    assert ["broken", "late"] * 2 == [name for line in said for name in ("broken", "late") if f"/{name}/" in line]
    with pytest.raises(ArchiveError):
        open_archives(tmp_path / "broken")


def computed(name: str, frame: str, folder: Path) -> pl.DataFrame:
    """A frame that one of our notebooks computes of the shipped archive."""
    notebook = nbformat.read(paths.NOTEBOOKS / f"{name}.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(f"{frame}.write_parquet('frame.parquet')"))
    nbformat.write(notebook, folder / f"{name}.ipynb")
    execute(folder / f"{name}.ipynb", folder / "out.ipynb", {"archive": str(opening.EXAMPLE)})
    return pl.read_parquet(folder / "frame.parquet")


def test_rates_by_hand_are_those_of_the_page(tmp_path: Path) -> None:
    """What the load notebook derives in two steps is what its table of highest rates has."""
    sweep = open_archive(opening.EXAMPLE)
    table = highest_rates(open_runs(sweep, sweep.hardware[0], "short"))
    shown = ("label", "holds", "breaks")

    assert sorted(table.select(shown).rows()) == sorted(computed("load", "sustained", tmp_path).select(shown).rows())


def test_energy_by_hand_is_that_of_the_page(tmp_path: Path) -> None:
    """CO₂, water and cost by the formulas of the energy notebook are the means of what runs recorded."""
    found = computed("energy", "by_hand", tmp_path)
    runs = open_archive(opening.EXAMPLE).objective_runs().group_by("config_id")
    names = ("co2_kg_per_1m_output_tok", "water_l_per_1m_output_tok", "cost_per_1m_output_tok")
    joined = found.join(runs.agg(pl.col(names).log().mean().exp()), on="config_id")

    assert 4 == joined.height
    for own, name in zip(("co2_kg", "water_l", "node_cost"), names, strict=True):
        assert joined[name].to_list() == pytest.approx(joined[own].to_list())


def test_gains_by_hand_are_those_of_the_ranking(tmp_path: Path) -> None:
    """The overview's gain of each config is the ranking's."""
    sweep = open_archive(opening.EXAMPLE)
    expected = rank(sweep, sweep.hardware[0]).frame.select("label", "gain").sort("label")
    found = computed("overview", "gains", tmp_path).sort("label")

    assert expected["gain"].to_list() == pytest.approx(found["gain"].to_list())


@pytest.mark.integration
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_runs_without_results(path: Path, tmp_path: Path) -> None:
    """Each shows the shipped archive and says so; none fails, and each shows a table or a figure."""
    executed = execute(path, tmp_path / "notebooks" / path.name, {})
    found = [output for cell in executed.cells for output in cell.get("outputs", ())]

    assert [True] == [opening.EXAMPLE.name in output.text for output in found if "text" in output]
    assert any("<table" in output.data.get("text/html", "") for output in found if "data" in output)
