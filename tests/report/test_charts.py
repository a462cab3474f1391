"""Charts are valid Vega-Lite, and carry no colour of their own."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from archive_factory import make_archive
from shown_pages import figures_of, rows_of, shown
from tokenpeak import paths
from tokenpeak.report import charts, figures, open_archive
from tokenpeak.report.ranking import rank
from tokenpeak.report.render import picture, script_json
from tokenpeak.report.site import SWEEP_PAGES
from tokenpeak.report.view import short_names
from tokenpeak.store.pack import unpacked

GOLDEN = paths.ROOT / "tests" / "report" / "golden" / "archive"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every figure of every page."""
    folder = tmp_path_factory.mktemp("executed")
    names = [page.notebook.stem for page in SWEEP_PAGES if page.notebook]
    return [figure for name in names for figure in figures_of(shown(name, GOLDEN, folder))]


def test_every_figure_can_be_drawn(drawn: list[dict[str, Any]]) -> None:
    """Each spec gives a picture with text in it."""
    for figure in drawn:
        assert "<text" in picture(figure["spec"], figure["name"]), figure["name"]


def points_of(rows: list[tuple[str, float, float]]) -> pl.DataFrame:
    """Points of a trade-off: label, x and y."""
    frame = pl.DataFrame(rows, schema=["label", "x", "y"], orient="row")
    return frame.with_columns(level=pl.lit("rate=1/s"), n=pl.lit(1))


def test_a_trade_off_names_the_recommended_config() -> None:
    """Its points are diamonds, drawn and named wherever they lie; without one there are none, and no word of it."""
    points = points_of([("fast", 9.0, 1.0), ("beaten", 1.0, 1.0), ("beaten", 1.5, 2.0), ("much", 2.0, 9.0)])
    marked, plain = (figures.front_points(points, label) for label in ("beaten", None))

    assert ["fast", "much"] == marked.filter("front")["label"].to_list()
    assert [False, True, True, False] == marked["taken"].to_list()
    assert any(words.startswith("beaten at rate=1/s") for words in marked["named"])
    assert "Diamonds are the recommended config, beaten." in figures.front_words(marked, figures.thinned(marked))
    assert not plain["taken"].any()
    assert "diamond" not in figures.front_words(plain, figures.thinned(plain)).lower()


def test_many_beaten_points_are_thinned() -> None:
    """Of those that are beaten an even choice is drawn, and the caption says how many; the front is drawn whole."""
    beaten = [(f"c{place}", place / 1000, 0.5) for place in range(1000)]
    points = figures.front_points(points_of([*beaten, ("fast", 9.0, 1.0), ("much", 2.0, 9.0)]), None)
    thin = figures.thinned(points)

    assert (2, 334) == (thin["front"].sum(), thin.height - 2)
    assert ", of which an even choice of 334 is drawn." in figures.front_words(points, thin)


def test_a_node_without_gpus_has_no_throughput_per_gpu(tmp_path: Path) -> None:
    """Axis, title and data speak of the node."""
    figure = figures_of(shown("latency", landscape(), tmp_path))[0]

    assert "a node's throughput" in figure["title"]
    assert "GPU" not in f"{figure['caption']}{json.dumps(figure['spec']['layer'])}"
    assert "tok/s per node" in [column["unit"] for column in figure["data"]["columns"]]


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


def test_a_trade_off_gives_a_config_what_the_ranking_gives_it(tmp_path: Path) -> None:
    """Over launches, not by the luckiest of them; the sentence above says the same."""
    view = open_archive(landscape())
    best = rank(view, view.hardware[0]).frame.sort("rank").row(0, named=True)
    found = shown("latency", landscape(), tmp_path)
    place = view.spec.objective_run()[1]
    points = rows_of(figures_of(found)[0]["data"])
    (whole,) = (row["y"] for row in points if (row["label"], row["level"]) == (best["label"], place))

    assert best["n"] > 1
    assert pytest.approx(best["objective"]) == whole
    assert "3,881 tok/s" in str(found[0])


def test_a_distribution_has_the_percentiles_of_the_tables(tmp_path: Path) -> None:
    """The figure's data name the percentiles that a run keeps, and give the same values for a config launched once."""
    view = open_archive(GOLDEN)
    found = figures_of(shown("latency", GOLDEN, tmp_path))
    points = rows_of(next(each["data"] for each in found if each["name"].startswith("shares-tpot")))
    label = points[0]["label"]
    (run,) = view.objective_runs().filter(pl.col("label") == label).iter_rows(named=True)
    seen = {row["share"]: row["value"] for row in points if row["label"] == label}

    assert {share: pytest.approx(1000 * run[f"tpot_s_p{share:.0f}"]) for share in seen} == seen
    assert [25, 50, 75, 90, 95, 99] == pytest.approx(list(seen))


def test_answers_of_one_token_have_no_distribution_of_tpot(tmp_path: Path) -> None:
    """There is no time per further token to draw; TTFT is drawn all the same."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3)
    for path in archive.path.rglob("*requests.parquet"):
        pl.read_parquet(path).with_columns(output_tokens=pl.lit(1, dtype=pl.Int64)).write_parquet(path)
    found = figures_of(shown("latency", archive.path, tmp_path / "executed"))

    assert ["ttft"] == [each["name"].split("-")[1] for each in found if each["name"].startswith("shares-")]


def test_a_single_best_config_is_one(tmp_path: Path) -> None:
    """The caption of a distribution speaks of one config where there is one."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3)
    found = figures_of(shown("latency", archive.path, tmp_path / "executed"))
    caption = next(each["caption"] for each in found if each["name"].startswith("shares-"))

    assert caption.startswith("The best config at concurrency=")
    assert "n=40 measured requests. A" in caption


def test_a_result_without_a_remark_is_ok(drawn: list[dict[str, Any]]) -> None:
    """The ranking's data give a reason only where there is one."""
    ranking = next(figure["data"] for figure in drawn if figure["name"].startswith("ranking-"))
    remarks = {row["remark"] for row in rows_of(ranking)}

    assert "ok" in remarks
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

    assert 2 * spec["spec"]["height"]["step"] >= 7 * len(name)


def test_colours_are_the_sites_own(drawn: list[dict[str, Any]]) -> None:
    """No spec names a colour: all are variables, so that both schemes are right."""
    for figure in drawn:
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b", str(figure["spec"])), figure["name"]


def test_json_in_a_page_cannot_end_its_script() -> None:
    """Markup inside data is escaped."""
    assert '"\\u003c/script\\u003e"' == str(script_json("</script>"))
