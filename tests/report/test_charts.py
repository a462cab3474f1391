"""Charts are valid Vega-Lite, and carry no colour of their own."""

import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report import SweepView, charts, distributions, figures, interactions, open_archive, trials
from tokenpeak.report.blocks import Figure
from tokenpeak.report.ranking import rank
from tokenpeak.report.rate_figures import rate_figures
from tokenpeak.report.render import picture, script_json
from tokenpeak.report.view import short_names
from tokenpeak.store.pack import unpacked


@pytest.fixture(scope="module")
def drawn(sim: SweepView) -> list[Figure]:
    """Every kind of figure."""
    hardware = sim.hardware[0]
    ranked = rank(sim, hardware)
    across, down = interactions.pairs(sim)[0]
    return [
        figures.ranking(sim, ranked),
        figures.heatmap(sim, across, down, interactions.widest_gain(sim)),
        figures.main_effects(sim),
        figures.energy_dots(sim, hardware, None),
        *figures.tradeoffs(sim, hardware, None),
        *rate_figures(sim, hardware, "short", None, None),
        *distributions.figures(sim, ranked),
        trials.time_split(sim),
    ]


def test_every_figure_can_be_drawn(drawn: list[Figure]) -> None:
    """Each spec gives a picture with text in it."""
    for figure in drawn:
        assert "<text" in picture(figure.spec, figure.name), figure.name


def test_a_trade_off_names_the_config_to_take(sim: SweepView) -> None:
    """Its points are diamonds, drawn and named wherever they lie; without one there are none, and no word of it."""
    hardware = sim.hardware[0]
    ranked = rank(sim, hardware)
    assert ranked.taken is not None
    label = str(ranked.taken["label"])
    marked, plain = (figures.tradeoffs(sim, hardware, taken)[0] for taken in (label, None))
    rows = [row for data in marked.spec["datasets"].values() for row in data if row["taken"]]

    assert {label} == {row["label"] for row in rows}
    assert any(row["named"].startswith(label) for row in rows)
    assert f"Diamonds are the config to take, {label}." in marked.caption
    assert "diamond" not in plain.caption.lower()


def test_a_node_without_gpus_has_no_throughput_per_gpu() -> None:
    """Axis, title and data speak of the node."""
    view = open_archive(unpacked(paths.ROOT / "analysis" / "landscapes" / "search-cpu.tar.zst"))
    figure = figures.tradeoffs(view, view.hardware[0], None)[0]

    assert "a node's throughput" in figure.title
    assert "GPU" not in f"{figure.caption}{json.dumps(figure.spec['layer'])}"
    assert "tok/s per node" in [column.unit for column in figure.data.columns]


def test_labels_keep_long_alternatives_apart(tmp_path: Path) -> None:
    """Alternatives that are JSON stand in labels by what differs between them, else by their number."""
    forms = ['{"mode":"FULL_AND_PIECEWISE","sizes":[1,2,4,8]}', '{"mode":"PIECEWISE"}']
    archive = make_archive(
        tmp_path / "a", gpus=["NVIDIA L4"], axes={"compilation_config": forms, "max_num_seqs": [8, 64]}, seconds=3
    )
    view = open_archive(archive.path)

    assert {'…FULL_AND_PIECEWISE","s… / 8', '…PIECEWISE"} / 64'} <= set(view.trials["label"].to_list())
    assert ["no. 1", "no. 2"] == list(short_names(["a" * 30 + "1", "a" * 30 + "2"]).values())


def test_a_trade_off_gives_a_config_what_the_ranking_gives_it() -> None:
    """Over launches, not by the luckiest of them; the sentence above says the same."""
    view = open_archive(unpacked(paths.ROOT / "analysis" / "landscapes" / "search-cpu.tar.zst"))
    hardware = view.hardware[0]
    best = rank(view, hardware).frame.sort("rank").row(0, named=True)
    (whole,) = figures.speeds(view, hardware).filter(pl.col("label") == best["label"])["whole"]
    told = distributions.answer_tradeoff(view)

    assert best["n"] > 1
    assert pytest.approx(best["objective"]) == whole
    assert "3,881 tok/s" in str(told)


def test_a_distribution_has_the_percentiles_of_the_tables() -> None:
    """The figure's data name the percentiles that a run keeps, and give the same values for a config launched once."""
    view = open_archive(paths.ROOT / "tests" / "report" / "golden" / "archive")
    ranked = rank(view, view.hardware[0])
    figure = next(each for each in distributions.figures(view, ranked) if each.name.startswith("shares-tpot"))
    label = figure.data.rows[0][0]["text"]
    (run,) = view.objective_runs().filter(pl.col("label") == label).iter_rows(named=True)
    shown = {row[1]["text"]: row[2]["value"] for row in figure.data.rows if row[0]["text"] == label}

    assert {share: pytest.approx(1000 * run[f"tpot_s_p{share}"]) for share in shown} == shown
    assert ["25", "50", "75", "90", "95", "99"] == list(shown)


def test_answers_of_one_token_have_no_distribution_of_tpot(sim: SweepView) -> None:
    """There is no time per further token to draw; TTFT is drawn all the same."""
    requests = sim.requests.with_columns(output_tokens=pl.lit(1, dtype=pl.Int64))
    view = replace(sim, frames=replace(sim.frames, requests=requests))
    found = distributions.figures(view, rank(view, view.hardware[0]))

    assert ["ttft"] == [figure.name.split("-")[1] for figure in found]


def test_a_single_best_config_is_one(tmp_path: Path) -> None:
    """The caption of a distribution speaks of one config where there is one."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3)
    view = open_archive(archive.path)
    figure = distributions.figures(view, rank(view, view.hardware[0]))[0]

    assert figure.caption.startswith("The best config at concurrency=")
    assert "n=40 measured requests. A" in figure.caption


def test_a_result_without_a_remark_is_ok(drawn: list[Figure]) -> None:
    """The ranking's data give a reason only where there is one."""
    ranking = drawn[0].data
    place = [column.key for column in ranking.columns].index("remark")
    remarks = {row[place]["text"] for row in ranking.rows}

    assert "ok" in remarks
    assert not any(remark.endswith(": ") for remark in remarks)


def test_figures_have_caption_and_data(drawn: list[Figure]) -> None:
    """Each figure says what to see and holds its numbers."""
    for figure in drawn:
        assert len(figure.caption) > 40
        assert figure.data.rows


def test_an_axis_name_has_room_beside_few_rows() -> None:
    """A heatmap of two rows is as high as the name of their axis is long, or its ends would be cut off."""
    cell = {"hardware": "L4", "state": "value", "step": "4", "words": "1", "under": "0%\nn=1", "why": ""}
    cell |= {"across": "4", "value": 1.0, "gain": 0.0, "n": 1}
    frame = pl.DataFrame([{**cell, "down": row} for row in ("a", "b")])
    name = "max_num_batched_tokens"
    spec = charts.spec_of(charts.heatmap(frame, across="x", down=name, across_order=["4"], down_order=["a", "b"]))

    assert 2 * spec["spec"]["height"]["step"] >= 7 * len(name)


def test_colours_are_the_sites_own(drawn: list[Figure]) -> None:
    """No spec names a colour: all are variables, so that both schemes are right."""
    for figure in drawn:
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b", str(figure.spec)), figure.name


def test_json_in_a_page_cannot_end_its_script() -> None:
    """Markup inside data is escaped."""
    assert '"\\u003c/script\\u003e"' == str(script_json("</script>"))
