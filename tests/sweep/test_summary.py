"""What a sweep's end says: the config to take, why, and its command; the site says the same."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak.report import open_archive
from tokenpeak.report.blocks.block import Snippets, plain
from tokenpeak.report.overview import headline
from tokenpeak.report.overview.summary import commands
from tokenpeak.report.ranking import ranking_blocks
from tokenpeak.report.ranking.standings import rank
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive
from tokenpeak.sweep.terminal_summary import summary_lines

SAME = {"max_num_seqs": [32, 64, 128]}
"""Configs that 32 requests in flight cannot distinguish."""

Swept = Callable[[str], Archive]


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    """A sweep of three tied configs, three launches each, of which the named one is production's."""

    def make(production: str) -> Archive:
        archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes=SAME, replicates=3, seconds=3)
        for path in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
            text = path.read_text().replace(f'"name":"{production}"', '"name":"production"')
            # Of a slow board: limits that it holds.
            path.write_text(
                text.replace('"ttft_p95_ms":500.0', '"ttft_p95_ms":9000.0')
                .replace('"tpot_p95_ms":50.0', '"tpot_p95_ms":900.0')
                .replace('"slo_met":false', '"slo_met":true')
            )
        return archive

    return make


def said(archive: Archive) -> str:
    """The last lines of the sweep."""
    record = archive.read_sweep()
    return "\n".join(summary_lines(record, parse_spec(record.spec, archive.path), list(archive.trials())))


@pytest.mark.parametrize("name", ["max_num_seqs=32", "max_num_seqs=64", "max_num_seqs=128"])
def test_production_that_ties_is_kept_wherever_it_ranks(swept: Swept, name: str) -> None:
    """The command printed is production's own, whichever of the tied configs has the best mean."""
    words = said(swept(name))

    assert "  Keep production, as nothing is shown to be better" in words
    assert "  3 configs tie; this one changes the fewest settings" in words
    assert "this sweep shows differences above " in words
    assert f"--{name.replace('_', '-').replace('=', ' ')}" in words.partition("    vllm serve ")[2]


def test_site_takes_what_the_terminal_takes(swept: Swept) -> None:
    """The recommendation, its key figures' row and its command are of the config that the terminal names."""
    archive = swept("max_num_seqs=64")
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])
    assert ranked.recommended is not None
    snippets = commands(view, ranked)
    assert snippets is not None
    command = shlex.join(shlex.split(snippets.snippets[0].text.replace("\\\n", " ")))

    assert "production" == ranked.recommended["config_name"]
    assert command in said(archive)
    terminal = said(archive)
    qualified = [plain(each.parts).rstrip(". ") for each in headline.qualifications(view, ranked)]
    assert qualified
    assert [] == [words for each in qualified for words in each.split(". ") if words not in terminal]


def test_equals_without_production_have_a_command(swept: Swept) -> None:
    """Nothing shows which of three is best, and who has to run one gets one that may be run, called no better."""
    archive = swept("nothing")
    view = open_archive(archive.path)
    snippets = commands(view, rank(view, view.hardware[0]))
    words = said(archive)

    assert "is not shown to be better than another" in words
    assert "--max-num-seqs" in words.partition("    vllm serve ")[2]
    assert isinstance(snippets, Snippets)
    assert "Not shown to be better." in snippets.snippets[0].note


def test_several_objectives_give_a_front_in_the_terminal_and_on_the_site(tmp_path: Path) -> None:
    """Both list the same configs, each of which none beats in throughput and latency; ranks stay by the first."""
    axes = {"max_num_seqs": [8, 16, 64], "enforce_eager": [True, False]}
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes=axes, seconds=3)
    sweep = archive.path / "sweep.json"
    sweep.write_text(sweep.read_text().replace('"also":[]', '"also":["ttft_s","energy_j_per_output_tok"]'))
    view = open_archive(archive.path)
    ranked = rank(view, view.hardware[0])
    found = ranking_blocks.trade_offs(view, ranked)
    assert found is not None
    names = dict(ranked.frame.select("label", "config_name").iter_rows())
    heading, _, rest = said(archive).partition("  Not beaten in all of ")[2].partition("\n")

    assert ["Config", "Rank", "Output throughput", "TTFT p50", "Energy per output token"] == [
        column.title for column in found.columns
    ]
    assert (
        f"Output throughput, Time to first token, Energy per output token, by means: {len(found.rows)} of 6 configs"
        == heading
    )
    assert sorted(f"      {names[row[0]['text']]}:" for row in found.rows) == sorted(
        line.partition(": ")[0] + ":" for line in rest.splitlines()[: len(found.rows)]
    )
