"""Rankings: best first, nothing left out, and no more certainty than the launches give."""

import json
from pathlib import Path

import polars as pl

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.records import StartupFacts
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.blocks.block import plain
from tokenpeak.report.overview import headline, summary
from tokenpeak.report.overview.score_card import score_card
from tokenpeak.report.overview.summary import next_steps
from tokenpeak.report.ranking import ranking_blocks
from tokenpeak.report.ranking.standings import ROOM, Ranking, rank
from tokenpeak.store.archive import find_archives


def said(view: SweepView, ranked: Ranking) -> str:
    """The headline and what qualifies it."""
    sentences = (headline.recommendation(view, ranked), *headline.qualifications(view, ranked))
    return " ".join(sentence.words() for sentence in sentences)


def test_every_config_is_ranked_or_has_a_reason(sim: SweepView) -> None:
    """Each config launched is a row; one without a result has no rank and says why."""
    for hardware in sim.hardware:
        frame = rank(sim, hardware).frame
        launched = sim.trials.filter(hardware=hardware)["config_id"].n_unique()

        assert launched == frame.height
        assert {("out of memory", "GPU memory ran out: 1.22 GiB more were wanted.")} == set(
            frame.filter(pl.col("rank").is_null()).select("why", "details").iter_rows()
        )


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
        ranking_blocks.standing(view, [ranked]).parts
    )


def test_a_gain_within_what_launches_differ_is_not_claimed() -> None:
    """Where two launches of one config differ by more than the gain, it is said to show nothing, beside the spread."""
    view = open_archive(paths.ARCHIVES / "h200-llama70b-fp8")
    ranked = rank(view, view.hardware[0])
    sentence = headline.recommendation(view, ranked)
    tiles = score_card(view, ranked)
    assert tiles is not None

    assert "Launches of one config differ by 23%, which shows nothing." in said(view, ranked)
    assert "Keep the engine's defaults" in said(view, ranked)
    assert ["1.5 req/s"] == [part["strong"] for part in sentence.parts if isinstance(part, dict) and "strong" in part]
    assert not [tile.label for tile in tiles.tiles if tile.label.startswith(("Gain", "With"))]


def test_room_for_more_requests_than_there_are_is_no_edge() -> None:
    """With 256 requests in flight, more than 512 sequences cannot help: the H100's page does not say to try them."""
    view = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    steps = next_steps(view, rank(view, view.hardware[0]))

    assert steps is not None
    assert "Confirm the ranking" in str(steps.words())
    assert "max_num_seqs=512" not in str(steps.words())


def test_latencies_are_shown_at_the_percentiles_that_the_slo_limits(tmp_path: Path) -> None:
    """The H100's SLO limits the 99th percentiles; without an SLO the 95th are shown, and the others are off."""
    limited = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3)
    sweep = json.loads((archive.path / "sweep.json").read_text())
    sweep["spec"]["slo"] = {}
    (archive.path / "sweep.json").write_text(json.dumps(sweep))

    for view, percentile in ((limited, "p99"), (open_archive(archive.path), "p95")):
        ranked = rank(view, view.hardware[0])
        for table in (ranking_blocks.ranking_table(view, ranked), summary.first_rows(view, ranked)):
            on = [column.key for column in table.columns if not column.hidden]
            assert [f"ttft_s_{percentile}", f"tpot_s_{percentile}"] == [
                key for key in on if key.startswith(("ttft_s", "tpot_s"))
            ]


def test_kv_cache_of_each_config_is_what_its_launches_state() -> None:
    """The table has GiB, tokens and requests that fit as the engines' logs have them, where those state any."""
    archive = paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"
    view = open_archive(archive)
    ranked = rank(view, view.hardware[0])
    titles = [column.title for column in ranking_blocks.ranking_table(view, ranked).columns]
    stated: dict[str, list[StartupFacts]] = {}
    (stored,) = find_archives([archive])
    for trial in stored.trials():
        stated.setdefault(trial.config.name, []).append(trial.startup)

    assert {"KV cache of one GPU", "KV cache", "Requests that fit"} <= set(titles)
    for row in ranked.frame.filter(state="ok").iter_rows(named=True):
        own = stated[row["config_name"]]
        for key in ROOM:
            assert min(getattr(each, key) for each in own) <= row[key] <= max(getattr(each, key) for each in own)


def test_kv_cache_that_no_log_states_has_no_column() -> None:
    """A published table without it has none on its page."""
    view = open_archive(paths.ARCHIVES / "v100-deepseek-r1-32b")
    shown = ranking_blocks.ranking_table(view, rank(view, view.hardware[0]))

    assert not [column for column in shown.columns if "KV cache" in column.title or "fit" in column.title]


def test_published_memory_and_quality_have_columns() -> None:
    """The T4's table: weights in GiB, and what it says of each format's quality."""
    view = open_archive(paths.ARCHIVES / "t4-mistral7b")
    ranked = rank(view, view.hardware[0])
    titles = {column.title for column in ranking_blocks.ranking_table(view, ranked).columns if not column.hidden}
    stated = ranked.frame.select("label", "stated_quality", pl.col("weights_bytes") / 1e9)

    assert {"Quality, as stated", "Weights of one GPU"} <= titles
    assert [("awq-4bit", "-2%", 4.5), ("float16", "best", 14.0), ("gguf-llama.cpp", "-5%", 4.0)] == [
        row for row in sorted(stated.rows()) if row[0] != "gptq-4bit"
    ]
