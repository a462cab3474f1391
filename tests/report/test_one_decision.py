"""Decision: terminal, site, exports and Postgres say the same of every shipped archive."""

import re
from pathlib import Path

import pytest

from tokenpeak.ranking.candidates import decided_by_records
from tokenpeak.report import open_archive
from tokenpeak.report.blocks.block import plain
from tokenpeak.report.overview.headline import recommendation
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.view import SweepView
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.store.decisions import with_decisions
from tokenpeak.store.frames import open_frames
from tokenpeak.sweep.terminal_summary import summary_lines

ROOT = Path(__file__).parents[2] / "analysis"
PLACES = [*sorted((ROOT / "archives").iterdir()), *sorted((ROOT / "landscapes").glob("*.tar.zst"))]


def opened(place: Path) -> tuple[Archive, SweepView]:
    """A shipped archive, unpacked where it is packed, and its view."""
    (archive,) = find_archives([place])
    return archive, open_archive(archive.path)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_terminal_site_and_exports_decide_alike(place: Path) -> None:
    """Outcome, config, gain and group by hardware: by records, by frames, and as columns of the exports."""
    archive, view = opened(place)
    record, trials = archive.read_sweep(), tuple(archive.judged_trials())
    configs = with_decisions(open_frames(archive.path)).configs
    for plan in record.plans:
        own = [trial for trial in trials if trial.hardware == plan.hardware]
        node = next(facts for facts in record.nodes if facts.node in plan.nodes)
        terminal = decided_by_records(
            view.spec, own, plan=plan, quality=archive.read_quality(), engine_version=node.engine_version
        ).decision
        site = rank(view, plan.hardware).decision
        rows = configs.filter(hardware=plan.hardware, decision=terminal.outcome)

        assert (terminal.outcome, terminal.config, terminal.group) == (site.outcome, site.config, site.group)
        assert terminal.gain == site.gain
        assert [terminal.config] == rows["config_id"].to_list() or terminal.config is None
        assert (terminal.distinguishable,) == tuple(rows["distinguishable"]) or terminal.config is None


@pytest.mark.parametrize("place", [each for each in PLACES if each.suffix], ids=lambda place: place.name)
def test_terminal_prints_the_headline_of_the_site(place: Path) -> None:
    """The words of the outcome, which both have from one place."""
    archive, view = opened(place)
    lines = summary_lines(archive.read_sweep(), view.spec, tuple(archive.judged_trials()), archive.read_quality())
    for hardware in view.hardware:
        headline = plain(recommendation(view, rank(view, hardware)).parts)
        starts = re.match(r"On .*?: (Run|Keep .* better|Nothing holds the SLO|Not known)?", headline)

        assert starts is not None
        assert any(line.strip().startswith(starts[1] or "") for line in lines if line.startswith("  ")), headline
        assert not starts[1] or any(starts[1] in line for line in lines)


def test_the_slo_is_held_by_what_is_named() -> None:
    """With a limit of 2 s on the p99 of TTFT no config beyond it is named, however fast."""
    (archive,) = find_archives([ROOT / "landscapes" / "search-h100.tar.zst"])
    view = open_archive(archive.path, slo="ttft_p99_ms=2000")
    ranked = rank(view, view.hardware[0])
    chosen = ranked.chosen

    assert chosen is not None
    assert float(str(chosen["ttft_s_p99"])) <= 2.0
    assert {"broken"} <= {each.hold for each in ranked.decision.faster}
