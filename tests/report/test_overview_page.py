"""The overview: a headline, a score card, what it trades, and nothing hidden that a reader would miss."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archive_factory import make_archive
from shown_pages import shown, table_of
from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.load.load_levels import hidden_loss
from tokenpeak.report.overview import headline
from tokenpeak.report.overview.alternatives import alternatives
from tokenpeak.report.ranking.standings import rank

LONGEST_HEADLINE = 25
H100 = paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"
SWEEPS = paths.ROOT / "tests" / "archives" / "sweeps"
SITES = {
    "h100": H100,
    "v100": paths.ARCHIVES / "v100-deepseek-r1-32b",
    "cpu": SWEEPS / "20261121-122043-quick-cpu.tar.zst",
    "sim": SWEEPS / "20261121-105900-quick-sim.tar.zst",
}


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
        assert {"config", "config:"} & set(words) or "Keep" in words


def test_alternatives_name_what_they_trade(tmp_path: Path) -> None:
    """A quarter of the time to first token costs 3% of the throughput; of configs that may not be run none is named."""

    def trade(trial: dict[str, Any]) -> None:
        run = trial["runs"][0]
        run["slo_met"] = True
        run["summary"]["output_tok_per_s"] = 100.0
        if trial["config"]["name"] == "max_num_seqs=8":
            run["summary"] |= {"output_tok_per_s": 97.0, "ttft_s": run["summary"]["ttft_s"] | {"p95": 0.05}}
        else:
            run["summary"]["ttft_s"]["p95"] = 0.2

    view = open_archive(changed(tmp_path, trade))
    h100 = open_archive(H100)
    (found,) = alternatives(view, rank(view, view.hardware[0]))

    assert "8" == found.row["label"]
    assert (pytest.approx(0.03), pytest.approx(0.75)) == (found.loss, found.gain)
    assert "−75% TTFT p95" == found.words
    assert [] == alternatives(h100, rank(h100, h100.hardware[0]))


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
    assert "At concurrency=32 of workload long this config reaches only 511 tok/s; 8 reaches 1,114." == loss.words()
    assert [pytest.approx((511.0, 1114.0))] == [
        (row["mine"], row["best"]) for row in rows if row["workload_name"] == "long"
    ]


def test_noise_and_safety_are_two_badges(tmp_path: Path) -> None:
    """One launch each shows no noise, and a broken SLO speaks against running; the sentences stand behind them."""

    def breaks(trial: dict[str, Any]) -> None:
        trial["runs"][0]["slo_met"] = False

    view = open_archive(changed(tmp_path, breaks))
    found = headline.assurance(view, rank(view, view.hardware[0]))

    assert found is not None
    assert ["Noise", "Safety"] == [badge.label for badge in found.badges]
    assert "not known, one launch each" == found.badges[0].value
    assert ("breaks the SLO", "worse") == (found.badges[1].value, found.badges[1].tone)
    assert found.sentences
