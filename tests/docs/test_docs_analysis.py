"""The reference of the analysis: what a notebook imports, each with an example that is true; and the guide to it."""

import doctest
import inspect
import re
from html import unescape
from pathlib import Path
from typing import Any

import altair as alt
import nbformat
import numpy as np
import polars as pl
import pytest
from tests.front_door.documented import doc_blocks

from tokenpeak import report
from tokenpeak.docs.analysis_tables import CLASSES, FUNCTIONS, example_of, members
from tokenpeak.report import EXAMPLE, SweepView, open_archive
from tokenpeak.report.site.notebook_runner import execute

EVERY: dict[str, Any] = {
    **{each.__name__: each for each in FUNCTIONS},
    **{f"{kind.__name__}.{name}": member for kind in CLASSES for name, member in members(kind)},
}
ASKED = ("trials", "runs", "requests", "series", "parameters", "objective_runs", "same_requests", "held_runs")
"""What a question begins with."""


@pytest.mark.parametrize("name", [name for name, each in EVERY.items() if example_of(each)])
def test_each_example_is_true(name: str) -> None:
    """What a docstring shows is what a reader gets of the shipped archive."""
    given = {"alt": alt, "pl": pl, "EXAMPLE": EXAMPLE, "sweep": open_archive(EXAMPLE)}
    given |= {each.__name__: each for each in FUNCTIONS}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(EVERY[name]) or "", given, name, None, 0)
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)

    assert [] == said


def test_the_package_itself_is_true() -> None:
    """The example of the package, too."""
    assert (0, True) == ((found := doctest.testmod(report)).failed, found.attempted > 0)


def test_everything_that_is_documented_has_an_example() -> None:
    """Each function, and each attribute that a question begins with."""
    lacking = [each for each in FUNCTIONS if not example_of(each)]

    assert [] == lacking
    assert [] == [name for name in ASKED if not example_of(vars(SweepView)[name])]


def test_the_page_has_them_all(docs: Path) -> None:
    """Each function has a section, each attribute a row, each name that the package exports is on the page."""
    text = unescape((docs / "reference" / "analysis.html").read_text())

    names = [each.__name__ for each in (*FUNCTIONS, *CLASSES)]

    assert [] == [name for name in names if f"<code>{name}</code></a></h2>" not in text]
    assert [] == [name for name in report.__all__ if name not in text]
    for name in (name.partition(".")[2] for name in EVERY if "." in name):
        assert re.search(rf"<tr id=[^>]+><td><code>{name}[<(]", text), name


def python_blocks() -> list[str]:
    """The guide's code."""
    return [block.text for block in doc_blocks("how-to/own-question") if block.language == "python"]


def test_the_guide_answers_its_questions(tmp_path: Path) -> None:
    """Each piece of code runs, in less than 15 lines; waits and costs are those of the raw rows."""
    spaces: list[dict[str, Any]] = []
    for code in python_blocks():
        spaces.append({})
        exec(code, spaces[-1])
    waits, pairs, costs = (each[name] for name, each in zip(("waits", "found", "answer"), spaces, strict=False))
    sweep = open_archive(EXAMPLE)
    own = sweep.trials.filter(label="64 / 8192")["trial_id"]
    requests = [pl.read_parquet(sweep.path / "trials" / f"{trial}.requests.parquet") for trial in own]
    closed = pl.concat(requests).filter(pl.col("run_index") == 0, pl.col("error").is_null())
    short = closed.filter(pl.col("input_tokens") < 512)

    assert all(len(code.splitlines()) < 15 for code in python_blocks())
    assert waits.row(by_predicate=(pl.col("label") == "64 / 8192") & (pl.col("prompt_from") == 0)) == (
        "64 / 8192",
        0,
        pytest.approx(float(np.quantile((short["first_token_s"] - short["sent_s"]).to_numpy(), 0.99))),
        short.height,
    )
    assert ["max_num_seqs × max_num_batched_tokens"] == pairs["pair"].to_list()
    for label, rate, cost in costs.select("label", "rate", "cost_per_1m_output_tok").iter_rows():
        run = sweep.runs.filter(label=label, rate_per_s=rate, cost_per_1m_output_tok=cost)
        # 2.5 USD an hour for one node, and nothing for energy.
        assert cost == pytest.approx(2.5 / 3600 / run["output_tok_per_s"].item() * 1e6)


def test_an_answer_of_the_guide_becomes_a_page(tmp_path: Path) -> None:
    """Its first question with its parameters cell runs as a page does."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    parameters = next(code for code in python_blocks() if code.startswith("archive ="))
    cells = [parameters, python_blocks()[0].replace("open_archive(EXAMPLE)", "open_archive(archive)"), "waits"]
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, tmp_path / "waits.ipynb")
    executed = execute(tmp_path / "waits.ipynb", tmp_path / "out" / "waits.ipynb", {"archive": str(EXAMPLE)}, own=True)

    assert "<table>" in executed.cells[-1].outputs[0].data["text/html"]
