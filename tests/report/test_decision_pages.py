"""Pages say the outcome of the decision, each on the archive that once said otherwise."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.blocks.block import Snippets, Table, Tile
from tokenpeak.report.compare.history import trend
from tokenpeak.report.overview import headline
from tokenpeak.report.overview.score_card import score_card
from tokenpeak.report.overview.summary import answers_of, commands
from tokenpeak.report.ranking import ranking_blocks
from tokenpeak.report.ranking.standings import Ranking, rank
from tokenpeak.report.view import SweepView

LANDSCAPES = paths.ROOT / "analysis" / "landscapes"
H100, CPU = LANDSCAPES / "search-h100.tar.zst", LANDSCAPES / "landscape-cpu.tar.zst"
PLACES = [*sorted(paths.ARCHIVES.iterdir()), *sorted(LANDSCAPES.glob("*.tar.zst"))]


def opened(place: Path, **asked: str) -> tuple[SweepView, Ranking]:
    """An archive's view and the ranking of its first hardware."""
    view = open_archive(place, **asked)
    return view, rank(view, view.hardware[0])


def tiles_of(view: SweepView, ranked: Ranking) -> dict[str, Tile]:
    """The tiles of the card by their labels."""
    card = score_card(view, ranked)
    return {tile.label: tile for tile in card.tiles} if card is not None else {}


def results_of(table: Table) -> dict[str, str]:
    """What the table's column of results says, by the label of the config."""
    keys = [column.key for column in table.columns]
    label, result = keys.index("label"), keys.index("result")
    return {row[label]["text"]: row[result]["text"] for row in table.rows}


def sentences_of(view: SweepView, ranked: Ranking) -> list[str]:
    """The headline with its cautions and qualifications."""
    blocks = (headline.recommendation(view, ranked), *headline.cautions(view, ranked))
    return [each.words() for each in (*blocks, *headline.qualifications(view, ranked))]


def test_what_breaks_the_slo_is_not_named() -> None:
    """With 2 s for the p99 of TTFT the fastest of the H100 breaks the SLO: it is said so, and nowhere recommended."""
    view, ranked = opened(H100, slo="ttft_p99_ms=2000")
    results = results_of(ranking_blocks.ranking_table(view, ranked))
    (first, *rest) = sentences_of(view, ranked)

    assert "breaks the SLO" == results["512 / 8192 / fp8 / fp8"]
    assert "fp8" not in first
    assert 1 == sum("it breaks the SLO" in each for each in rest)
    assert ranked.chosen is not None
    assert ranked.chosen["ttft_s_p99"] <= 2.0


@pytest.mark.parametrize("name", ["h100", "t4-mistral7b"])
def test_answers_that_nobody_compared_are_not_recommended(name: str) -> None:
    """Faster formats have a line of their own, once, and a badge with the reason; the rest of them is counted."""
    view, ranked = opened(H100 if name == "h100" else paths.ARCHIVES / name)
    results = results_of(ranking_blocks.ranking_table(view, ranked))
    lines = [each for each in sentences_of(view, ranked) if "its answers were not compared" in each]
    faster = ranked.decision.faster

    assert 1 == len(lines)
    assert f"measured {max(each.ratio or 0 for each in faster) - 1:.1%} higher" in lines[0]
    assert f"the same holds for {len(faster) - 1} more" in lines[0]
    assert len(faster) <= list(results.values()).count("answers not compared")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_one_word_on_all_of_a_page(place: Path) -> None:
    """Card and table call the decision's config the same; where it is not known what to run, no mark and no gain."""
    view = open_archive(place)
    for hardware in view.hardware:
        ranked = rank(view, hardware)
        tiles = tiles_of(view, ranked)
        drawn = ranking_blocks.standings(ranked)
        marked = drawn.filter("marked")["label"].to_list()
        table = ranking_blocks.ranking_table(view, ranked)
        chosen = ranked.chosen
        if chosen is None:
            assert not tiles
            continue

        assert ranked.mark in {tile.mark for tile in tiles.values()}
        assert ranked.decision.outcome == "not_known" or results_of(table)[chosen["label"]] == ranked.mark
        assert marked == ([chosen["label"]] if ranked.is_known else [])
        assert ranked.is_known == ("answer" == headline.recommendation(view, ranked).tone)
        assert ranked.is_known or "best" not in {*table.row_tones, *results_of(table).values()}, hardware
        assert ("Gain" in tiles) <= (ranked.decision.outcome == "run")
        assert ranked.decision.is_shown or "better" not in {tile.tone for tile in tiles.values()}


def test_one_launch_each_is_not_knowledge() -> None:
    """Without a replicate nothing is best, tied or behind, nothing is drawn in colour, and the start page says it."""
    view, ranked = opened(paths.ARCHIVES / "v100-deepseek-r1-32b")
    results = set(results_of(ranking_blocks.ranking_table(view, ranked)).values())

    assert {"ahead, not proven", "highest, not proven", "not proven"} >= results
    assert {""} == set(ranking_blocks.standings(ranked)["group"])
    assert {"answer open"} == {each.tone for each in answers_of(view) if "is not proven" in each.words()}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_bars_that_overlap_the_best_are_tied(place: Path) -> None:
    """A bar meets the bar of the best that may be run just where the config is in its group, or ranked above one."""
    view = open_archive(place)
    for hardware in view.hardware:
        ranked = rank(view, hardware)
        if not ranked.replicated or not ranked.decision.group:
            continue
        bars = ranking_blocks.standings(ranked).drop_nulls(["low", "high"])
        best = bars.filter(group="best").row(0, named=True)
        meets = (pl.col("high") >= best["low"] * (1 - 1e-9)) & (pl.col("low") <= best["high"] * (1 + 1e-9))
        last = bars.with_row_index().filter(meets)["index"].max()
        tied = bars.with_row_index().filter(pl.col("group") != "")["index"].max()
        caption = ranking_blocks.ranking_caption(view, ranked)

        assert last == tied
        assert "one that overlaps the best's is tied with it" in caption
        if (least := ranked.decision.distinguishable) is not None:
            said = f"This sweep shows differences above {least:.0%}."
            assert said not in caption
            assert said in ranking_blocks.standing(view, [ranked]).words()
            assert any(f"shows differences above {least:.0%}" in each for each in sentences_of(view, ranked))


def test_a_class_has_one_row_that_names_its_mates() -> None:
    """Of configs that the load cannot make differ one stands for all, with the launches of all."""
    view, ranked = opened(CPU)
    table = ranking_blocks.ranking_table(view, ranked)
    also = [column.key for column in table.columns].index("also")
    row = next(row for row in ranked.frame.iter_rows(named=True) if row["alike"])
    words = next(line[also]["text"] for line in table.rows if line[0]["text"] == row["label"])

    assert f"also {', '.join(row['alike'])}: cannot differ" == words
    assert row["n"] > 3


def test_no_gain_beside_nothing_shown() -> None:
    """H200 and A100: no sentence says to run what launches do not show, and no command stands without that word."""
    for name in ("h200-llama70b-fp8", "a100x8-llama70b"):
        view, ranked = opened(paths.ARCHIVES / name)
        shown = commands(view, ranked)

        assert " Run " not in " ".join(sentences_of(view, ranked))
        assert not [label for label in tiles_of(view, ranked) if label == "Gain"]
        assert not isinstance(shown, Snippets) or shown.snippets[0].note.startswith(("Not shown", "Nothing has to"))


def test_equal_precision_that_nobody_tried_is_not_explored() -> None:
    """The one other config at 16 bits breaks the SLO of the H100, so nothing says what there is to gain."""
    view, ranked = opened(H100)
    tile = tiles_of(view, ranked)["Gain at equal precision"]

    assert tile.value == "not explored"
    assert tile.note == "1 other config of this precision tried; none may be run, as the ranking says"


def test_no_command_where_nothing_holds_the_slo(tmp_path: Path) -> None:
    """What comes nearest is named as that, without a command to paste."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3)
    for path in archive.path.glob("trials/*.json"):
        trial = json.loads(path.read_text())
        for run in trial["runs"]:
            run["slo_met"] = False
        path.write_text(json.dumps(trial))
    view, ranked = opened(archive.path)
    results = results_of(ranking_blocks.ranking_table(view, ranked))

    assert "Nothing holds the SLO" in headline.recommendation(view, ranked).words()
    assert {"nearest to the SLO", "breaks the SLO"} == set(results.values())
    assert commands(view, ranked) is None


@pytest.mark.parametrize(
    ("value", "bounds", "verdict"),
    [
        (1.2, (0.02, 0.02), "better"),
        (0.8, (0.02, 0.02), "worse"),
        (1.05, (0.04, 0.04), "not distinguishable"),
        (1.06, (0.04, 0.04), "better"),
        (1.01, (0.001, 0.001), "not distinguishable"),
        (1.2, (0.02, None), "not known"),
    ],
)
def test_a_history_has_the_rule_of_upgrades(
    value: float, bounds: tuple[float | None, float | None], verdict: str
) -> None:
    """A change counts beyond the margin and beyond the root of both intervals' squares; without one it is not known."""
    rows = []
    for day, (own, half) in enumerate(zip((1.0, value), bounds, strict=True), 1):
        row: dict[str, Any] = {
            "key": ["a", "b", "c", "d", "e", "f", "g"],
            "sweep_id": f"{day}",
            "date": f"2026-11-0{day}T00:00:00+00:00",
            "hardware": "c",
            "config": "x",
            "value": own,
            "low": None if half is None else own * math.exp(-half),
            "high": None if half is None else own * math.exp(half),
            "unit": "tok/s",
            "higher": True,
            "margin": 0.02,
            "n": 3,
            "simulated": False,
        }
        rows.append([row])
    ((_, table),) = trend(rows)
    keys = [column.key for column in table.columns]

    assert [verdict, "first"] == [row[keys.index("verdict")]["text"] for row in table.rows]


def test_the_second_workload_decides_in_a_tie() -> None:
    """Of what ties on the CPU the one that is best under the other workload is named, by the runs' own mean."""
    view, ranked = opened(CPU)
    assert ranked.chosen is not None
    objective, _ = view.spec.objective_run()
    other = view.same_requests().filter(pl.col("workload_name") != objective, pl.col("verdict") != "invalid")
    own = view.trials.select("trial_id", "config_class")
    means = other.join(own, on="trial_id").group_by("config_class").agg(pl.col("output_tok_per_s").log().mean().exp())
    value = dict(means.rows())
    of_class = dict(view.trials.select("config_id", "config_class").rows())
    tied = {config: value[of_class[config]] for config in ranked.decision.group}

    assert len(tied) > 1
    assert tied[ranked.decision.config or ""] >= (1 - view.spec.search.margin) * max(tied.values())
    assert min(tied.values()) < (1 - view.spec.search.margin) * max(tied.values())
