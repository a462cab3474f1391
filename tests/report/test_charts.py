"""Charts are valid Vega-Lite, and carry no colour of their own."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import polars as pl
import pytest

from archive_factory import make_archive
from shown_pages import figures_of, rows_of, shown
from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.blocks import charts
from tokenpeak.report.load import interactivity
from tokenpeak.report.overview.score_card import score_card
from tokenpeak.report.ranking import ranking_table
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.site.notebook_runner import blocks
from tokenpeak.report.site.render import picture, script_json
from tokenpeak.report.view import short_names
from tokenpeak.store.pack import unpacked

GOLDEN = paths.ROOT / "tests" / "report" / "golden" / "archive"


@pytest.fixture(scope="module")
def drawn(small: Path) -> list[dict[str, Any]]:
    """Every figure of every page of the golden archive."""
    notebooks = sorted(small.glob("*/data/notebooks/*.ipynb"))
    return [figure for path in notebooks for figure in figures_of(blocks(nbformat.read(path, as_version=4)))]


@pytest.mark.integration
def test_every_figure_can_be_drawn(drawn: list[dict[str, Any]]) -> None:
    """Each spec gives a picture with text in it."""
    for figure in drawn:
        assert "<text" in picture(figure["spec"], figure["name"]), figure["name"]


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


def test_many_beaten_points_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are not picked an even choice is drawn; the picked ones are drawn whole."""
    monkeypatch.setattr(interactivity, "BEATEN", 3)
    figure, points = pictured(landscape())
    sizes = sorted(len(rows) for rows in figure["spec"]["datasets"].values())

    assert points.height > 3
    assert points.height in sizes
    assert any(2 <= size <= 3 for size in sizes)


def test_a_node_without_gpus_has_no_throughput_per_gpu() -> None:
    """Axis and data speak of the node."""
    figure, _ = pictured(landscape())

    assert "GPU" not in f"{figure['caption']}{json.dumps(figure['spec']['layer'])}"
    assert "tok/s per node" in [column["unit"] for column in figure["data"]["columns"]]


def test_a_config_whose_answers_are_not_proven_is_hollow(tmp_path: Path) -> None:
    """Quality that failed or is unknown is marked in the picture, and the caption says so."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3)
    view = open_archive(archive.path)
    best = rank(view, view.hardware[0]).recommended
    assert best is not None
    verdict = pl.when(pl.col("config_id") == best["config_id"]).then(pl.lit("unknown"))
    marked = replace(view, frames=replace(view.frames, trials=view.trials.with_columns(quality=verdict)))
    ranked = rank(marked, marked.hardware[0])
    found = interactivity.interactivity(marked, ranked)
    assert found is not None

    assert "Hollow points: quality not proven." in found.caption
    assert {False} == set(interactivity.points(marked, ranked).filter(series=best["label"])["proven"])
    assert "quality" in {column.key for column in ranking_table.ranking(marked, ranked).columns}
    assert "Quality" in [tile.label for tile in score_card(marked, ranked).tiles]  # type: ignore[union-attr]


def landscape() -> Path:
    """A sweep of a CPU engine with several launches of each config."""
    return unpacked(paths.ROOT / "analysis" / "landscapes" / "search-cpu.tar.zst")


def test_labels_keep_long_alternatives_apart(tmp_path: Path) -> None:
    """Alternatives that are JSON stand in labels by what differs between them, else by their number."""
    forms = ['{"mode":"FULL_AND_PIECEWISE","sizes":[1,2,4,8]}', '{"mode":"PIECEWISE"}']
    archive = make_archive(
        tmp_path / "a", gpus=["NVIDIA L4"], axes={"compilation_config": forms, "max_num_seqs": [8, 64]}, seconds=3
    )
    view = open_archive(archive.path)

    assert {'…FULL_AND_PIECEWISE","s… / 8', '…PIECEWISE"} / 64'} <= set(view.trials["label"].to_list())
    assert ["no. 1", "no. 2"] == list(short_names(["a" * 30 + "1", "a" * 30 + "2"]).values())


def test_the_picture_gives_a_config_what_the_ranking_gives_it() -> None:
    """Over launches, not by the luckiest of them."""
    view = open_archive(landscape())
    best = rank(view, view.hardware[0]).frame.sort("rank").row(0, named=True)
    figure, _ = pictured(landscape())
    place = view.spec.objective_run()[1]
    points = rows_of(figure["data"])
    (whole,) = (row["y"] for row in points if (row["series"], row["level_label"]) == (best["label"], place))

    assert best["n"] > 1
    assert pytest.approx(best["objective"]) == whole


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


def test_answers_of_one_token_have_no_distribution_of_tpot(tmp_path: Path) -> None:
    """There is no time per further token to draw; TTFT and latency are drawn all the same."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3)
    for path in archive.path.rglob("*requests.parquet"):
        pl.read_parquet(path).with_columns(output_tokens=pl.lit(1, dtype=pl.Int64)).write_parquet(path)
    found = figures_of(shown("requests", archive.path, tmp_path / "executed"))
    points = rows_of(next(each["data"] for each in found if each["name"].startswith("quantiles-")))

    assert {"TTFT", "Latency"} == {row["quantity"] for row in points}


def test_an_archive_without_requests_has_the_recorded_quantiles(tmp_path: Path) -> None:
    """The caption says where they are from, and there is nothing by input length."""
    found = figures_of(shown("requests", landscape(), tmp_path))
    quantiles = next(each for each in found if each["name"].startswith("quantiles-"))

    assert quantiles["caption"].endswith("Quantiles as recorded: the archive has no single requests.")
    assert not [each for each in found if each["name"].startswith("ttft-by-")]


def test_a_result_without_a_remark_is_completed(drawn: list[dict[str, Any]]) -> None:
    """The ranking's data give a reason only where there is one."""
    ranking = next(figure["data"] for figure in drawn if figure["name"].startswith("ranking-"))
    remarks = {row["remark"] for row in rows_of(ranking)}

    assert "completed" in remarks
    assert not any(remark.endswith(": ") for remark in remarks)


def test_figures_have_caption_and_data(drawn: list[dict[str, Any]]) -> None:
    """Each figure says what to see and holds its numbers."""
    for figure in drawn:
        assert len(figure["caption"]) > 40
        assert figure["data"]["rows"]


def test_an_axis_name_has_room_beside_few_rows() -> None:
    """A heatmap of two rows is as high as the name of their axis is long, or its ends would be cut off."""
    cell = {"hardware": "L4", "state": "value", "step": "4", "words": "1", "under": "0%\nn=1", "why": ""}
    cell |= {"across": "4", "value": 1.0, "gain": 0.0, "n": 1}
    frame = pl.DataFrame([{**cell, "down": row} for row in ("a", "b")])
    name = "max_num_batched_tokens"
    spec = charts.spec_of(charts.heatmap(frame, across="x", down=name, across_order=["4"], down_order=["a", "b"]))

    assert 2 * spec["height"]["step"] >= 7 * len(name)


def test_colours_are_the_sites_own(drawn: list[dict[str, Any]]) -> None:
    """No spec names a colour: all are variables, so that both schemes are right."""
    for figure in drawn:
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b", str(figure["spec"])), figure["name"]


def test_json_in_a_page_cannot_end_its_script() -> None:
    """Markup inside data is escaped."""
    assert '"\\u003c/script\\u003e"' == str(script_json("</script>"))
