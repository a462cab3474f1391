"""Charts are valid Vega-Lite, and carry no colour of their own."""

import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import polars as pl
import pytest

from shown_pages import figures_of, rows_of, shown
from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.load import interactivity
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.site.notebook_runner import blocks
from tokenpeak.store.pack import unpacked

GOLDEN = paths.ROOT / "tests" / "report" / "golden" / "archive"


@pytest.fixture(scope="module")
def drawn(small: Path) -> list[dict[str, Any]]:
    """Every figure of every page of the golden archive."""
    notebooks = sorted(small.glob("*/data/notebooks/*.ipynb"))
    return [figure for path in notebooks for figure in figures_of(blocks(nbformat.read(path, as_version=4)))]


def pictured(archive: Path) -> tuple[dict[str, Any], pl.DataFrame]:
    """The overview's picture of throughput against interactivity, and its points."""
    view = open_archive(archive)
    ranked = rank(view, view.hardware[0])
    found = interactivity.interactivity(view, ranked)
    assert found is not None
    return found.payload(), interactivity.points(view, ranked)


def test_the_front_is_what_nothing_beats_in_both() -> None:
    """Every point of the front is beaten by none, every other by one, by comparing all with all."""
    _, points = pictured(landscape())
    rows = points.select("x", "y", "front").rows()
    beaten = [any(a >= x and b >= y and (a, b) != (x, y) for a, b, _ in rows) for x, y, _ in rows]

    assert [not each for each in beaten] == [front for *_, front in rows]


def landscape() -> Path:
    """A sweep of a CPU engine with several launches of each config."""
    return unpacked(paths.ROOT / "analysis" / "landscapes" / "search-cpu.tar.zst")


def test_quantiles_are_those_that_runs_recorded(tmp_path: Path) -> None:
    """Counted from single requests, they are the percentiles that the load client summed up; NumPy agrees."""
    found = shown("requests", GOLDEN, tmp_path)
    points = rows_of(next(each["data"] for each in figures_of(found) if each["name"].startswith("quantiles-")))
    view = open_archive(GOLDEN)
    label = points[0]["series"]
    (run,) = view.objective_runs().filter(pl.col("label") == label).iter_rows(named=True)
    requests = view.requests.filter(
        pl.col("trial_id") == run["trial_id"], pl.col("run_index") == run["run_index"], pl.col("phase") == "measured"
    ).collect()
    tpot = (requests["last_token_s"] - requests["first_token_s"]) / (requests["output_tokens"] - 1) * 1000
    seen = {row["x"]: row["value"] for row in points if row["series"] == label and row["quantity"] == "TPOT"}

    assert {99.0: pytest.approx(1000 * run["tpot_s_p99"]), 50.0: pytest.approx(1000 * run["tpot_s_p50"])}.items() <= {
        share: seen[share] for share in (99.0, 50.0)
    }.items()
    assert [pytest.approx(np.quantile(tpot.to_numpy(), share / 100)) for share in seen] == list(seen.values())


def test_colours_are_the_sites_own(drawn: list[dict[str, Any]]) -> None:
    """No spec names a colour: all are variables, so that both schemes are right."""
    for figure in drawn:
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b", str(figure["spec"])), figure["name"]
