"""Search among forty settings of a real engine, recorded on two workloads: see analysis/landscapes.

It is what a search meets in practice: launches that differ by a tenth, settings that matter much, a little and not at
all, and a predictor that knows some of it.
"""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tokenpeak import paths
from tokenpeak.cli.replay import replay
from tokenpeak.ranking.ties import winner_group
from tokenpeak.search.finals import SCREENING_LAUNCHES
from tokenpeak.search.history import history_of
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive
from tokenpeak.store.pack import unpacked

LANDSCAPES = paths.ROOT / "analysis" / "landscapes"
RECORDED = LANDSCAPES / "landscape-cpu.tar.zst"


def searched(workload: str, *, seeds: int) -> dict[str, Any]:
    """What `tokenpeak replay` reports of searches of the recorded landscape."""
    command = [str(RECORDED), "--workload", workload, "--seeds", str(seeds), "--format", "json"]
    result = CliRunner().invoke(replay, command)
    assert 0 == result.exit_code, result.output
    reported: dict[str, Any] = json.loads(result.output)
    return reported


def test_forty_configs_are_recorded_with_three_launches() -> None:
    """Every config was launched three times and met both workloads; one run was refused by the client's verdict."""
    for workload, refused in (("write", 0), ("ask", 1)):
        (landscape,) = searched(workload, seeds=1)["landscapes"]

        assert [40, 120, refused] == [landscape[key] for key in ("configs", "launches", "failed_launches")]


def test_the_choice_of_ten_trials_is_in_the_winner_group_of_all() -> None:
    """What the search took among forty configs is tied with the best of all forty by the exhaustive sweep's runs."""
    exhaustive = json.loads((LANDSCAPES / "exhaustive-cpu.json").read_text())
    group = winner_group(exhaustive["output_tok_per_s"]).group
    archive = Archive(unpacked(LANDSCAPES / "search-cpu.tar.zst"))
    sweep = archive.read_sweep()
    spec, plan = parse_spec(sweep.spec, archive.path), sweep.plans[0]
    history = history_of(list(archive.trials()), spec, plan.hardware)
    strategy = make_strategy(spec.search, plan, metric=spec.objective.metric)
    names = {planned.config.config_id: planned.config.name for planned in plan.feasible}
    screened = [outcome for outcome in history if outcome.replicate < SCREENING_LAUNCHES]

    assert {names[strategy.choose(each) or ""] for each in (screened, history)} <= set(group)
    assert len(group) < 40


@pytest.mark.e2e
@pytest.mark.parametrize(("workload", "least"), [("write", 0.95), ("ask", 0.92)])
def test_ten_trials_hit_on_the_recorded_landscape(workload: str, least: float) -> None:
    """Two hundred searches hit as often as was measured, within six trials by the median, and more than random ones."""
    report = searched(workload, seeds=200)

    assert report["hit_rate"] >= least, report
    assert report["median_trials_to_hit"] <= 6
    assert report["hit_rate"] > report["random"]["hit_rate"] + 0.1
