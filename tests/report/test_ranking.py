"""Rankings: best first, nothing left out, and no more certainty than the launches give."""

import json
from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive
from shown_pages import shown, table_of
from tokenpeak import paths
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.blocks.block import plain
from tokenpeak.report.energy import config_energy
from tokenpeak.report.overview import headline, summary
from tokenpeak.report.overview.alternatives import alternatives_table
from tokenpeak.report.overview.next_steps import next_steps
from tokenpeak.report.overview.score_card import score_card
from tokenpeak.report.ranking import ranking_figure, ranking_table
from tokenpeak.report.ranking.standings import Ranking, rank
from tokenpeak.report.trials import trial_tables


def said(view: SweepView, ranked: Ranking) -> str:
    """The headline and what qualifies it."""
    qualified = headline.qualifications(view, ranked)
    return f"{headline.recommendation(view, ranked).words()} {qualified.words() if qualified else ''}"


def test_every_config_is_ranked_or_has_a_reason(sim: SweepView) -> None:
    """Each config launched is a row; one without a result has no rank and says why."""
    for hardware in sim.hardware:
        frame = rank(sim, hardware).frame
        launched = sim.trials.filter(hardware=hardware)["config_id"].n_unique()

        assert launched == frame.height
        assert {("out of memory", "GPU memory ran out: 1.22 GiB more were wanted.")} == set(
            frame.filter(pl.col("rank").is_null()).select("why", "details").iter_rows()
        )


def test_launched_once_gives_no_interval(sim: SweepView) -> None:
    """With one launch each there is no interval, and the card says so."""
    ranked = rank(sim, sim.hardware[0])
    card = score_card(sim, ranked)
    assert card is not None

    assert ranked.frame["low"].null_count() == ranked.frame.height
    assert "each launched once: noise unknown" in card.words()


def test_a_single_config_is_shown_without_others(tmp_path: Path) -> None:
    """Where one config gave a result, nothing is said of a gain's interval, nor of others near it."""
    view = open_archive(make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3).path)
    sentence = said(view, rank(view, view.hardware[0]))

    assert "It is the only config with a result, so there is no gain to state." in sentence
    assert "The next" not in sentence
    assert "launched once" not in sentence
    assert plain(ranking_figure.standing(view, [rank(view, view.hardware[0])]).parts).startswith(
        "1 config gave a result on 1"
    )
    assert ("n", "1 trial, 4 runs") in view.facts()
    assert ("Config names", "max_num_seqs") in view.facts()


def test_an_interrupted_launch_has_not_failed(tmp_path: Path) -> None:
    """A config of which every launch was interrupted is shown as such: nothing is known against it."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], seconds=3)
    file = next(archive.path.glob("trials/0003-*.json"))
    record = json.loads(file.read_text()) | {"status": "interrupted", "runs": []}
    file.write_text(json.dumps(record))
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])

    assert [("interrupted", "the launch was interrupted")] == ranked.frame.filter(state="interrupted").select(
        "state", "why"
    ).rows()
    assert "7 configs gave a result on 1 kind of hardware, 1 was interrupted." in plain(
        ranking_figure.standing(view, [ranked]).parts
    )


def test_launches_that_say_nothing_give_no_interval(tmp_path: Path) -> None:
    """Two launches that differ widely are no ground for an interval from nothing to a thousandfold."""
    archive = make_archive(
        tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, replicates=2, noise=0.4, seconds=3
    )
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])

    assert ranked.vague
    assert ranked.replicated is False
    assert ranked.frame["low"][0] is None


def test_a_gain_within_what_launches_differ_is_not_claimed() -> None:
    """Where two launches of one config differ by more than the gain, it is said to show nothing, beside the spread."""
    view = open_archive(paths.ARCHIVES / "h200-llama70b-fp8")
    ranked = rank(view, view.hardware[0])
    sentence = headline.recommendation(view, ranked)
    tiles = score_card(view, ranked)
    assert tiles is not None

    assert "Launches of one config differ by 23%, so a gain of +15% shows nothing." in said(view, ranked)
    assert ["2 req/s"] == [part["strong"] for part in sentence.parts if isinstance(part, dict) and "strong" in part]
    assert not [tile.label for tile in tiles.tiles if tile.label.startswith(("Gain", "With"))]


def test_the_figure_marks_the_recommended_config() -> None:
    """The diamond, and the row that is lit, are the config that the page recommends, not the best mean of its tie."""
    view = open_archive(paths.ARCHIVES / "v100-deepseek-r1-32b")
    ranked = rank(view, view.hardware[0])
    figure = ranking_figure.ranking(view, ranked)
    drawn = [row for rows in figure.spec["datasets"].values() for row in rows if row.get("marked")]
    table = ranking_table.ranking(view, ranked)
    lit = [row[0]["text"] for row, tone in zip(table.rows, table.row_tones, strict=True) if tone == "best"]
    assert ranked.best is not None
    assert ranked.recommended is not None

    assert ranked.recommended["label"] != ranked.best["label"]
    assert [ranked.recommended["label"]] == [row["label"] for row in drawn] == lit
    assert "Diamond: recommended." in figure.caption


def test_one_mean_over_launches_stands_everywhere(tmp_path: Path) -> None:
    """The ranking's figures beside its objective are those of the trade-offs and of the energy page."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, replicates=3, noise=0.2)
    sweep = archive.path / "sweep.json"
    sweep.write_text(sweep.read_text().replace('"also":[]', '"also":["ttft_s","energy_j_per_output_tok"]'))
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])
    joules = {
        row["label"]: row["energy_j_per_output_tok"]
        for row in table_of(shown("energy", archive.path, tmp_path), "energy")
    }
    rows = {row["config_id"]: row for row in ranked.frame.iter_rows(named=True)}

    assert joules == pytest.approx({row["label"]: row["energy_j_per_output_tok"] for row in rows.values()})
    assert ranked.trade_offs
    for config_id, (_, ttft_s, joule) in ranked.trade_offs.items():
        assert (ttft_s, joule) == pytest.approx(
            (rows[config_id]["ttft_s_p50"], rows[config_id]["energy_j_per_output_tok"])
        )


def test_a_baseline_in_the_sweep_is_what_gains_are_against(tmp_path: Path) -> None:
    """A config called production is the baseline, with an interval of the gain over it."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, replicates=3, seconds=3)
    for path in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
        path.write_text(path.read_text().replace('"name":"max_num_seqs=8"', '"name":"production"'))
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])
    best = ranked.best
    assert ranked.baseline is not None
    assert best is not None

    assert "production" == ranked.baseline.words
    assert best["gain_low"] < best["gain"] < best["gain_high"]  # type: ignore[operator]


def test_figures_of_runs_that_may_not_be_ranked_are_not_said_to_be_missing(tmp_path: Path) -> None:
    """Energy that was measured in invalid runs is not called unmeasured, nor is their speed."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3)
    path = next(archive.path.glob("trials/*.json"))
    trial = json.loads(path.read_text())
    for run in trial["runs"]:
        run["verdict"] = {"status": "invalid", "reasons": [{"code": "loop_lag", "text": "Late."}]}
    path.write_text(json.dumps(trial))
    view = open_archive(archive.path)

    assert "In this sweep no run that may be ranked has an energy figure." == config_energy.no_energy(view).words()
    blocks = shown("requests", archive.path, tmp_path / "executed")
    assert "no run that may be ranked recorded when its requests were answered" in str(blocks[0]["parts"])


def test_an_edge_is_one_that_can_be_passed(tmp_path: Path) -> None:
    """All GPUs are no edge of parallelism, nor is one of anything; a spec may give values in any order."""
    published = open_archive(paths.ARCHIVES / "a100x8-llama70b")
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [4, 16, 8]}, seconds=3)
    view = open_archive(archive.path)
    steps = [next_steps(each, rank(each, each.hardware[0])) for each in (published, view)]
    words = [
        plain(step).split(" tried")[0]
        for each in steps
        if each is not None
        for step in each.steps
        if " tried" in plain(step)
    ]

    assert "16" == (rank(view, view.hardware[0]).recommended or {})["axis_max_num_seqs"]
    assert ["max_num_batched_tokens=98304 was the highest", "max_num_seqs=16 was the highest"] == words
    assert "16 was the highest tried; try 32." in str(steps[1] and steps[1].words())


def test_room_for_more_requests_than_there_are_is_no_edge() -> None:
    """With 256 requests in flight, more than 512 sequences cannot help: the H100's page does not say to try them."""
    view = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    steps = next_steps(view, rank(view, view.hardware[0]))

    assert steps is not None
    assert "Confirm the gain" in str(steps.words())
    assert "max_num_seqs=512" not in str(steps.words())


def test_cost_is_shown_in_its_currency(tmp_path: Path) -> None:
    """Wherever cost is an objective or a column, its unit is the currency of the spec's price."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], seconds=3)
    sweep = archive.path / "sweep.json"
    record = json.loads(sweep.read_text())
    record["spec"]["energy"] |= {"price_per_node_hour": 2.5, "currency": "CHF"}
    record["spec"]["objective"]["metric"] = "cost_per_1m_output_tok"
    sweep.write_text(json.dumps(record))
    view = open_archive(archive.path)
    shown_words = plain(headline.recommendation(view, rank(view, view.hardware[0])).parts)
    shown = trial_tables.runs(view, view.runs, "runs", "Runs")

    assert " CHF/1M tokens at " in shown_words
    assert "currency/" not in f"{shown_words} {[column.unit for column in shown.columns]}"


def test_recomputed_tokens_are_shown_where_there_are_any(tmp_path: Path) -> None:
    """A run whose requests were preempted shows the share of tokens computed again; without any there is no column."""
    view = open_archive(make_archive(tmp_path / "a", gpus=["NVIDIA L4"], seconds=3).path)
    none = trial_tables.runs(view, view.runs.with_columns(recomputed_share=0.0), "runs", "Runs")
    some = trial_tables.runs(view, view.runs.with_columns(recomputed_share=0.004), "runs", "Runs")
    at = [column.key for column in some.columns].index("recomputed")

    assert "recomputed" not in [column.key for column in none.columns]
    assert {"0.40"} == {row[at]["text"] for row in some.rows}


def test_latencies_are_shown_at_the_percentiles_that_the_slo_limits(tmp_path: Path) -> None:
    """The H100's SLO limits the 99th percentiles; without an SLO the 95th are shown, and the others are off."""
    limited = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3)
    sweep = json.loads((archive.path / "sweep.json").read_text())
    sweep["spec"]["slo"] = {}
    (archive.path / "sweep.json").write_text(json.dumps(sweep))

    for view, percentile in ((limited, "p99"), (open_archive(archive.path), "p95")):
        ranked = rank(view, view.hardware[0])
        for table in (ranking_table.ranking(view, ranked), summary.first_rows(view, ranked)):
            on = [column.key for column in table.columns if not column.hidden]
            assert [f"ttft_s_{percentile}", f"tpot_s_{percentile}"] == [
                key for key in on if key.startswith(("ttft_s", "tpot_s"))
            ]
    alternatives = alternatives_table(limited, rank(limited, limited.hardware[0]))
    assert alternatives is not None
    keys = [column.key for column in alternatives.columns]
    assert [True, False] == ["ttft_s_p99" in keys, "ttft_s_p95" in keys]
