"""Own pages: a user's notebook is a page of each sweep, and one that fails leaves the others whole."""

import csv
import html
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import polars as pl
import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.cli.site import report
from tokenpeak.errors import InputError
from tokenpeak.report import open_archive
from tokenpeak.report.site import render
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.publish import broken_links, leaving

SHARE = """
import altair as alt
import polars as pl
from tokenpeak.report import open_archive

sweep = open_archive(archive)
fast = sweep.trials.filter(pl.col("objective") > least)
"""
CELLS = (
    'archive = "../results"\nleast: float = 0.0  # tok/s',
    SHARE,
    'alt.Chart(fast.select("label", "objective"), title="Fast ones").mark_bar().encode(x="objective:Q", y="label:N")',
    'fast.select("trial_id", "objective").sort("trial_id").head(3)',
    'print("how many:", fast.height)',
)


HOSTILE = '"Fast" <script>alert(1)</script>'
BROKEN = ("no_json", "no_notebook", "no_format", "deep", "folder", "nowhere")


def write(path: Path, *cells: str, **metadata: Any) -> Path:
    """A notebook with its page's metadata; its first cell declares parameters."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": kernel, **({"tokenpeak": metadata} if metadata else {})}
    )
    notebook.cells = [
        nbformat.v4.new_markdown_cell("Which launches are *fast*?"),
        *(nbformat.v4.new_code_cell(cell) for cell in cells),
    ]
    notebook.cells[1].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A small archive."""
    return make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3).path


@pytest.fixture
def notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's notebooks."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(paths, "OWN_NOTEBOOKS", folder)
    return folder


def raw_objectives(archive: Path) -> dict[str, float]:
    """Each trial's output throughput of its first run, from raw JSON."""
    trials = [json.loads(path.read_bytes()) for path in sorted((archive / "trials").glob("*.json"))]
    return {trial["trial_id"]: trial["runs"][0]["summary"]["output_tok_per_s"] for trial in trials}


def text_of(page: Path) -> str:
    """A page's words."""
    return html.unescape(re.sub(r"<[^>]+>", " ", page.read_text()))


@pytest.mark.usefixtures("few_pages")
def test_a_notebook_is_a_page_of_each_sweep(archive: Path, notebooks: Path, tmp_path: Path) -> None:
    """Its title is its metadata's; its chart, frame and printed text are on the page."""
    objectives = raw_objectives(archive)
    least = sorted(objectives.values())[len(objectives) // 2] - 0.001
    write(notebooks / "our_fast.ipynb", *CELLS, title="Fast launches")
    build_site([archive], tmp_path / "site", parameters={"least": f"{least:.4f}", "objective": "ttft_s_p95"})
    page = tmp_path / "site" / "a" / "our-fast.html"
    menu = re.findall(r'<li><a href="([\w-]+)\.html"', (page.parent / "ranking.html").read_text())
    fast = [trial for trial, value in objectives.items() if value > least]

    assert 0 < len(fast) < len(objectives)
    assert "<h1>Fast launches</h1>" in page.read_text()
    assert ["index", "ranking", "trials", "our-fast"] == menu
    assert f"how many: {len(fast)}" in text_of(page)
    assert all(trial in text_of(page) for trial in fast)
    assert 'id="figure-fast-ones"' in page.read_text()
    assert (page.parent / "data" / "notebooks" / "our-fast.ipynb").is_file()
    assert (page.parent / "data" / "csv" / "our-fast-fast-ones.csv").is_file()
    assert waits(archive) == shown_waits(page.parent / "data" / "csv" / "ranking-ranking-1x-nvidia-l4.csv")


def waits(archive: Path) -> list[float]:
    """Each trial's TTFT p95 of its first run in ms, from raw JSON, the shortest first."""
    trials = [json.loads(path.read_bytes()) for path in (archive / "trials").glob("*.json")]
    return sorted(round(trial["runs"][0]["summary"]["ttft_s"]["p95"] * 1000, 6) for trial in trials)


def shown_waits(path: Path) -> list[float]:
    """The objective's column of the ranking's CSV."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    (column,) = [head for head in rows[0] if head.startswith("Time to first token p95")]
    return [round(float(row[column]), 6) for row in rows]


FRAMES = """
rows = sweep.series.select("trial_id", "t_s", "value", at=pl.col("t_s") > 1, seen=pl.lit([1, 2]))
rows.head(1200)
"""


@pytest.mark.usefixtures("few_pages")
def test_a_frame_is_a_whole_table(archive: Path, notebooks: Path, tmp_path: Path) -> None:
    """Its CSV has each row, figures with all digits, nothing for null; a metric has the title and unit of our pages."""
    write(notebooks / "long.ipynb", *CELLS[:2], FRAMES, "sweep.runs", 'sweep.requests.select("ttft_s")', "rows['t_s']")
    document = nbformat.read(notebooks / "long.ipynb", as_version=4)
    document.cells[0].source = "# How long it takes\n\nSome words."
    document.cells.insert(3, nbformat.v4.new_markdown_cell("Some words.\n\n## What was sampled"))
    nbformat.write(document, notebooks / "long.ipynb")
    build_site([archive], tmp_path / "site")
    folder = tmp_path / "site" / "a" / "data" / "csv"
    sampled, runs, requests, times = (
        list(csv.DictReader((folder / f"long-what-was-sampled{end}.csv").read_text().splitlines()))
        for end in ("", "-2", "-3", "-4")
    )
    series = open_archive(archive).series.head(1200)
    waits = [trial["runs"] for path in (archive / "trials").glob("*.json") if (trial := json.loads(path.read_bytes()))]
    p99 = sorted(run["summary"]["ttft_s"]["p99"] * 1000 for each in waits for run in each)

    assert series["value"].to_list() == [float(row["value"]) if row["value"] else None for row in sampled]
    assert series["value"].null_count() > 0
    assert {"true", "false"} == {row["at"] for row in sampled}
    assert {"1, 2"} == {row["seen"] for row in sampled}
    assert p99 == pytest.approx(sorted(float(row["TTFT p99 (ms)"]) for row in runs))
    assert pl.scan_parquet(archive / "trials" / "*.parquet").collect().height == len(requests)
    assert open_archive(archive).series.height == len(times)
    page = (tmp_path / "site" / "a" / "long.html").read_text()
    assert page.count("How long it takes") == 2, "once as the page's title, once in the window's"
    assert "<h1>How long it takes</h1>" in page
    assert ">Long</a></li>" in page


OVER_ALL = (
    'archives: list[str] = ["../results"]\nleast: float = 0.0  # tok/s',
    """
import polars as pl
from tokenpeak.report import open_archives

sweeps = open_archives(archives)
pl.concat(sweep.trials.select("sweep_id", "objective") for sweep in sweeps).group_by("sweep_id").max()
""",
)


@pytest.mark.usefixtures("few_pages")
def test_a_notebook_over_several_archives_is_one_page(archive: Path, notebooks: Path, tmp_path: Path) -> None:
    """It is in the menu of the whole site and reads every sweep, those too whose pages stay as they are."""
    later = make_archive(tmp_path / "b", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3).path
    write(notebooks / "compare.ipynb", *OVER_ALL, title="All of them")
    write(notebooks / "static.ipynb", *OVER_ALL)
    said: list[str] = []
    build_site([archive], tmp_path / "site")
    build_site([archive, later], tmp_path / "site", say=said.append)
    folder = tmp_path / "site" / "compare"
    rows = list(csv.DictReader((folder / "data" / "csv" / "compare-all-of-them.csv").read_text().splitlines()))
    executed = (folder / "data" / "notebooks" / "compare.ipynb").read_text()

    assert "pages of a stay as they are" in said
    assert {each.name: max(raw_objectives(each).values()) for each in (archive, later)} == pytest.approx(
        {row["sweep_id"]: float(row["objective"]) for row in rows}
    )
    assert '<a href="./compare/index.html">All of them</a>' in (tmp_path / "site" / "methodology.html").read_text()
    assert '<a href="../compare/index.html">All of them</a>' in (tmp_path / "site" / "b" / "index.html").read_text()
    assert not (tmp_path / "site" / "a" / "compare.html").exists()
    assert str(tmp_path) not in executed
    assert "own-static/index.html" in leaving(tmp_path / "site")
    assert [] == broken_links(tmp_path / "site")


@pytest.mark.usefixtures("few_pages")
def test_a_notebook_that_fails_is_a_page_that_says_so(archive: Path, notebooks: Path, tmp_path: Path) -> None:
    """The cell and the error are on its page, and every other page is there."""
    write(notebooks / "bad.ipynb", CELLS[0], "1 + 1", "raise ValueError('no <b>luck</b>')")
    (notebooks / "no_json.ipynb").write_text("{")
    write(notebooks / "odd.ipynb", *CELLS, tilte="Odd")
    write(notebooks / "index.ipynb", *CELLS)
    write(notebooks / "asks.ipynb", CELLS[0], "input('Which? ')")
    write(notebooks / "empty_title.ipynb", *CELLS, title=" ")
    write(notebooks / "hostile.ipynb", *CELLS[:2], 'print("how many")', title=HOSTILE)
    (notebooks / "no_notebook.ipynb").write_text("{}")
    (notebooks / "no_format.ipynb").write_text('{"cells": [7], "metadata": {}}')
    (notebooks / "deep.ipynb").write_text("[" * 100_000)
    (notebooks / "folder.ipynb").mkdir()
    (notebooks / "nowhere.ipynb").symlink_to("nothing")
    kernelless = json.loads(write(notebooks / "no_kernel.ipynb", *CELLS).read_text()) | {"metadata": {}}
    (notebooks / "no_kernel.ipynb").write_text(json.dumps(kernelless))
    said: list[str] = []
    render.code_digest.cache_clear()  # it reads what is named like a notebook, once a process
    build_site([archive], tmp_path / "site", say=said.append)
    folder = tmp_path / "site" / "a"

    assert "bad.ipynb, cell 4: ValueError: no <b>luck</b>" in text_of(folder / "bad.html")
    assert "no_json.ipynb is no notebook" in text_of(folder / "no-json.html")
    assert "metadata.tokenpeak has 'tilte'. It may have title." in text_of(folder / "odd.html")
    assert "asks.ipynb, cell 3: EOFError" in text_of(folder / "asks.html")
    assert "metadata.tokenpeak.title is ' '. It must have 1 to 200 characters" in text_of(folder / "empty-title.html")
    assert f"<h1>{html.escape(HOSTILE)}</h1>".replace("&quot;", "&#34;") in (folder / "hostile.html").read_text()
    assert HOSTILE not in (folder / "ranking.html").read_text()
    for name in BROKEN:
        assert f"{name}.ipynb" in text_of(folder / f"{name.replace('_', '-')}.html")
    assert "how many:" in text_of(folder / "no-kernel.html")
    assert "how many:" in text_of(folder / "own-index.html")
    assert "Overview" in text_of(folder / "index.html")
    assert (folder / "trials.html").is_file()
    assert {"bad", "odd", "asks", "empty-title", *(name.replace("_", "-") for name in BROKEN)} == {
        line.split()[1] for line in said if line.startswith("page ")
    }


@pytest.mark.e2e
def test_wrong_parameters_are_refused(archive: Path, notebooks: Path, tmp_path: Path) -> None:
    """A name that no page declares, and a value that is not allowed, end before anything is made, with status 2."""
    write(notebooks / "fast.ipynb", *CELLS)
    for given, said in (
        ("leest=3", "Did you mean least"),
        ("least=few", "must be a finite number"),
        ("least", "NAME=VALUE"),
        ("level=7", "level is '7'"),
    ):
        result = CliRunner().invoke(report, [str(archive), "--output", str(tmp_path / "site"), "--param", given])

        assert isinstance(result.exception, InputError)
        assert said in str(result.exception)
        assert 2 == result.exception.exit_status
    assert not (tmp_path / "site").exists()
