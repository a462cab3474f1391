"""The overview: a headline, a score card, what it trades, and nothing hidden that a reader would miss."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archive_factory import make_archive
from shown_pages import figures_of, rows_of, shown, table_of
from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.blocks.block import plain
from tokenpeak.report.load.load_levels import hidden_loss
from tokenpeak.report.overview import headline, summary
from tokenpeak.report.overview.alternatives import alternatives
from tokenpeak.report.overview.score_card import score_card
from tokenpeak.report.ranking.standings import rank
from tokenpeak.store.pack import unpacked

LONGEST_HEADLINE = 25
H100 = paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"
SWEEPS = paths.ROOT / "tests" / "archives" / "sweeps"
SITES = {
    "h100": H100,
    "v100": paths.ARCHIVES / "v100-deepseek-r1-32b",
    "cpu": SWEEPS / "20261121-122043-quick-cpu.tar.zst",
    "sim": SWEEPS / "20261121-105900-quick-sim.tar.zst",
}


@pytest.fixture(scope="module")
def h100(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The blocks of the H100's overview."""
    return shown("overview", H100, tmp_path_factory.mktemp("h100"))


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """An archive of two configs whose trials `change` changes."""
    archive = make_archive(folder / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3, noise=0.001)
    for path in archive.path.glob("trials/*.json"):
        trial = json.loads(path.read_text())
        change(trial)
        path.write_text(json.dumps(trial))
    return archive.path


@pytest.mark.parametrize("name", SITES)
def test_the_headline_is_short(name: str) -> None:
    """At most 25 words for each kind of hardware; a config is one of them, however many settings it names."""
    view = open_archive(SITES[name])
    for hardware in view.hardware:
        parts = headline.recommendation(view, rank(view, hardware)).parts
        words = "".join(part if isinstance(part, str) else part.get("strong", "config") for part in parts).split()

        assert len(words) <= LONGEST_HEADLINE
        assert {"run", "config:"} <= set(words)


def test_random_weights_are_said_on_index_and_overview(h100: list[dict[str, Any]]) -> None:
    """The weights of the H100 sweep were random numbers: its overview and its card of the index say so."""
    view = open_archive(H100)
    sentences = [plain(block["parts"]) for block in h100 if block["kind"] == "sentence"]
    on_the_index = [each.words() for each in summary.answers_of(view)]

    for found in (sentences, on_the_index):
        assert any("random weights" in sentence for sentence in found)


def test_a_gain_of_precision_is_said_to_be_one(h100: list[dict[str, Any]]) -> None:
    """+40% come with eight bits; without them no config beat the defaults, and the card says so first."""
    (card,) = [block for block in h100 if block["kind"] == "tiles"]
    tiles = {tile["label"]: tile for tile in card["tiles"]}
    sentences = [plain(block["parts"]) for block in h100 if block["kind"] == "sentence"]

    assert ("none", "nothing beats the engine's defaults, 1 other tried") == (
        tiles["Gain at equal precision"]["value"],
        tiles["Gain at equal precision"]["note"],
    )
    assert "+40%" == tiles["With fp8 weights and fp8 KV cache"]["value"]
    assert (
        "The gain comes with fp8 weights and fp8 KV cache. At equal precision, nothing tried beats the engine's "
        "defaults. The recommended config's quality was not measured." in sentences
    )


def test_a_gain_at_equal_precision_is_called_that(tmp_path: Path) -> None:
    """Where the recommended config changes nothing of the baseline's precision, its gain is at equal precision."""

    def as_defaults(trial: dict[str, Any]) -> None:
        if trial["config"]["name"] == "max_num_seqs=8":
            trial["config"]["name"] = "defaults"

    folder = changed(tmp_path, as_defaults)
    sweep = folder / "sweep.json"
    sweep.write_text(sweep.read_text().replace('"name":"max_num_seqs=8"', '"name":"defaults"'))
    view = open_archive(folder)
    card = score_card(view, rank(view, view.hardware[0]))
    assert card is not None

    assert ["Gain at equal precision"] == [tile.label for tile in card.tiles if "recision" in tile.label]
    assert not [each for each in summary.answers_of(view) if "precision" in each.words()]


def test_alternatives_name_what_they_trade() -> None:
    """On the H100, half the time to first token costs 2% of the throughput; the figures are from raw JSON.

    The SLO limits the 99th percentile.
    """
    view = open_archive(H100)
    found = alternatives(view, rank(view, view.hardware[0]))
    raw = {}
    for path in (unpacked(H100) / "trials").glob("*.json"):
        trial = json.loads(path.read_text())
        (run,) = [run for run in trial["runs"] if run["level"]["concurrency"] == 256]
        raw[trial["config"]["config_id"]] = (run["summary"]["output_tok_per_s"], run["summary"]["ttft_s"]["p99"])
    best = max(raw.values())

    assert ["512 / 2048 / fp8 / fp8", "512 / 2048 / fp8 / auto"] == [each.row["label"] for each in found]
    for each in found:
        throughput, ttft_s = raw[each.row["config_id"]]
        assert pytest.approx(1 - throughput / best[0]) == each.loss
        assert pytest.approx(1 - ttft_s / best[1]) == each.gain
        assert f"−{1 - ttft_s / best[1]:.0%} TTFT p99" == each.words


def test_an_alternative_keeps_the_slo(tmp_path: Path) -> None:
    """A config that breaks the SLO is no alternative to one that holds it, however fast its first token is."""

    def trade(trial: dict[str, Any]) -> None:
        run = trial["runs"][0]
        run["summary"]["output_tok_per_s"] = 100.0
        if trial["config"]["name"] == "max_num_seqs=8":
            run["summary"]["output_tok_per_s"] = 97.0
            run["summary"]["ttft_s"]["p95"] /= 4
            run["slo_met"] = breaks is False
        else:
            run["slo_met"] = True

    counts = []
    for breaks in (False, True):
        view = open_archive(changed(tmp_path / str(breaks), trade))
        counts.append(len(alternatives(view, rank(view, view.hardware[0]))))

    assert [1, 0] == counts


def test_a_loss_at_another_load_is_not_hidden(tmp_path: Path) -> None:
    """The recommended config gives half of another's throughput under a second workload: a sentence says so."""

    def second(trial: dict[str, Any]) -> None:
        run = json.loads(json.dumps(trial["runs"][0]))
        run["workload"]["name"] = "long"
        fast = trial["config"]["name"] == "max_num_seqs=64"
        run["summary"]["output_tok_per_s"] = 511.0 if fast else 1114.0
        trial["runs"].append(run)

    folder = changed(tmp_path, second)
    sweep = folder / "sweep.json"
    record = json.loads(sweep.read_text())
    plan = json.loads(json.dumps(record["spec"]["workloads"][0]))
    plan["workload"]["name"] = "long"
    record["spec"]["workloads"].append(plan)
    sweep.write_text(json.dumps(record))
    view = open_archive(folder)
    loss = hidden_loss(view, rank(view, view.hardware[0]))
    rows = table_of(shown("overview", folder, tmp_path / "executed"), "levels-")

    assert loss is not None
    assert "At long, concurrency=32 it gives only 511 tok/s; 8 gives 1,114." == loss.words()
    assert [pytest.approx((511.0, 1114.0))] == [
        (row["mine"], row["best"]) for row in rows if row["workload_name"] == "long"
    ]


def test_every_load_level_is_shown_against_baseline_and_best(h100: list[dict[str, Any]]) -> None:
    """A row per level of the recommended config, with the baseline's and the best value, as raw JSON has them."""
    raw: dict[str, dict[str, float]] = {}
    for path in (unpacked(H100) / "trials").glob("*.json"):
        trial = json.loads(path.read_text())
        for run in trial["runs"]:
            level = f"concurrency={run['level']['concurrency']}"
            raw.setdefault(level, {})[trial["config"]["name"]] = run["summary"]["output_tok_per_s"]
    mine = "max_num_seqs=512, max_num_batched_tokens=8192, weights=fp8, kv_cache_dtype=fp8"

    expected = {level: (values[mine], values["defaults"], max(values.values())) for level, values in raw.items()}
    rows = table_of(h100, "levels-")

    assert set(expected) == {row["level_label"] for row in rows}
    for row in rows:
        assert pytest.approx(expected[row["level_label"]]) == (row["mine"], row["theirs"], row["best"])


def test_the_picture_has_a_line_for_each_config_that_a_reader_asks_for(h100: list[dict[str, Any]]) -> None:
    """Throughput against a user's speed: recommended, baseline and alternatives have roles, the rest has none."""
    (picture,) = figures_of(h100)
    rows = rows_of(picture["data"])
    roles = {row["role"] for row in rows} - {"–"}

    assert picture["name"].startswith("interactivity-")
    assert {
        "recommended",
        "defaults",
        "alternative",
    } == roles
    assert 15 == len(rows)


def test_the_overview_shows_ten_rows_of_the_ranking(tmp_path: Path) -> None:
    """Of 40 configs the overview has ten, the recommended one among them; the ranking page has all."""
    archive = make_archive(
        tmp_path / "a",
        gpus=["NVIDIA L4"],
        axes={"max_num_seqs": [8, 16], "max_num_batched_tokens": list(range(512, 10752, 512))},
        seconds=2,
        requests=20,
    )
    blocks = shown("overview", archive.path, tmp_path / "executed")
    rows = table_of(blocks, "first-")

    assert 10 == len(rows)
    assert list(range(1, 10)) == [row["rank"] for row in rows[:9]]
    assert {"best", "recommended"} & {row["result"] for row in rows}


def test_nothing_is_said_of_a_production_that_there_was_not() -> None:
    """Nodes whose production did not run have lost none: no seconds, and nothing restored."""
    facts = dict(summary.cost_of_sweep(open_archive(SITES["sim"])).pairs)

    assert "no node served a production" == facts["Production not serving"]
    assert not re.search(r"\b0 s\b", " ".join(facts.values()))
    assert "Production restored" not in facts


def test_a_published_figure_is_not_called_a_launch(tmp_path: Path) -> None:
    """The V100's source does not say how often a config was launched: no text of its overview says once."""
    blocks = shown("overview", SITES["v100"], tmp_path)
    (card,) = [block for block in blocks if block["kind"] == "tiles"]
    tiles = {tile["label"]: tile for tile in card["tiles"]}
    texts = json.dumps([{**block, "spec": None} for block in blocks])

    assert not re.search(r"launched once|one launch|1 launch\b", texts, re.IGNORECASE)
    assert "1 figure" == tiles["Trust"]["value"]
    assert "one figure a config, launches unknown: noise unknown" in tiles["Trust"]["note"]


def test_no_gain_over_a_median_that_is_tied() -> None:
    """Where half of the configs or more tie, the median is among them: neither headline nor card shows a gain."""
    view = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-cpu.tar.zst")
    ranked = rank(view, view.hardware[0])
    card = score_card(view, ranked)
    assert card is not None

    assert headline.recommendation(view, ranked).words().endswith("; no gain shown: 8 of 10 configs tie.")
    assert ["none shown"] == [tile.value for tile in card.tiles if tile.label == "Gain"]


def test_configs_that_broke_the_slo_are_counted_beside_a_gain_over_their_median() -> None:
    """The median of the configs tried holds four that broke the SLO."""
    view = open_archive(SITES["cpu"])
    card = score_card(view, rank(view, view.hardware[0]))
    assert card is not None

    (gain,) = [tile for tile in card.tiles if tile.label == "Gain"]
    assert gain.note.endswith("; 4 of 8 broke the SLO")
