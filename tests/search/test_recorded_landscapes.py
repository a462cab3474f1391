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
from tokenpeak.search.history import Outcome, history_of
from tokenpeak.search.landscape import landscapes_of
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.search import SearchSpec
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


def test_a_config_that_was_measured_best_is_taken_though_its_like_were_slower() -> None:
    """One launch of ten is ahead of all others by 8%, of one of the two best of forty."""
    archive = Archive(unpacked(RECORDED))
    sweep = archive.read_sweep()
    asked = parse_spec(dict(sweep.spec) | {"objective": {"workload": "ask"}}, RECORDED)
    (known,) = landscapes_of("ask", sweep, archive.trials(), asked)
    names = {planned.config.name: planned.config.config_id for planned in known.plan.feasible}
    launched = [
        ("32, max_num_batched_tokens=256, enable_prefix_caching=true, threads=one", 0),
        ("32, max_num_batched_tokens=1024, enable_prefix_caching=true, threads=two", 2),
        ("64, max_num_batched_tokens=1024, enable_prefix_caching=true, threads=two", 0),
        ("4, max_num_batched_tokens=256, enable_prefix_caching=false, threads=one", 2),
        ("16, max_num_batched_tokens=1024, enable_prefix_caching=true, threads=two", 1),
        ("32, max_num_batched_tokens=256, enable_prefix_caching=true, threads=two", 2),
        ("32, max_num_batched_tokens=1024, enable_prefix_caching=true, threads=one", 1),
        ("64, max_num_batched_tokens=256, enable_prefix_caching=true, threads=two", 1),
        ("64, max_num_batched_tokens=256, enable_prefix_caching=true, threads=one", 1),
        ("32, max_num_batched_tokens=256, enable_prefix_caching=true, threads=two", 1),
    ]
    history: list[Outcome] = []
    for name, launch in launched:
        config_id = names[f"max_num_seqs={name}"]
        again = sum(outcome.config_id == config_id for outcome in history)
        value = known.launches[config_id][launch]
        history.append(Outcome(config_id=config_id, replicate=again, status="ok", value=value))
    ahead = max(history, key=lambda outcome: outcome.value or 0.0)

    strategy = make_strategy(SearchSpec(strategy="adaptive", trials=10, seed=183), known.plan, metric=known.metric)

    assert ahead is history[1]
    assert strategy.choose(history) == ahead.config_id


@pytest.mark.e2e
@pytest.mark.parametrize(("workload", "least"), [("write", 0.95), ("ask", 0.92)])
def test_ten_trials_hit_on_the_recorded_landscape(workload: str, least: float) -> None:
    """Two hundred searches hit as often as was measured, within six trials by the median, and more than random ones."""
    found = searched(workload, seeds=200)

    assert found["hit_rate"] >= least, found
    assert found["median_trials_to_hit"] <= 6
    assert found["hit_rate"] > found["random"]["hit_rate"] + 0.1
