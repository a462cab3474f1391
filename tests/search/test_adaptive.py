"""Adaptive search: its hit rates on landscapes whose truth its predictor does not know, its finals and early stops."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from landscape_factory import HARDWARE, landscape, plan_of

from tokenpeak.records import TRANSIENT_CAUSES
from tokenpeak.search.adaptive import early_stop_threshold
from tokenpeak.search.history import Finished, Outcome, Proposal, Strategy
from tokenpeak.search.replay import Landscape, Replay, replay, summarize
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SearchSpec

ADAPTIVE = SearchSpec(strategy="adaptive", trials=10)


def measured(step: Proposal, truth: Landscape) -> Outcome:
    """The outcome of a trial on the landscape."""
    value = truth.launches[step.config_id][step.replicate]
    return Outcome(
        config_id=step.config_id,
        replicate=step.replicate,
        status="failed" if value is None else "ok",
        value=value,
        failure_cause="out_of_memory" if value is None else None,
        duration_s=60.0,
    )


def carried_out(strategy: Strategy, truth: Landscape, history: Sequence[Outcome] = ()) -> list[Outcome]:
    """The history of a whole sweep on one node, from `history` on."""
    made = list(history)
    while isinstance(step := strategy.propose(made, ()), Proposal):
        made.append(measured(step, truth))
    return made


@pytest.mark.parametrize(("nodes", "crash"), [(2, 0.0), (4, 0.0), (4, 0.25)])
def test_resume_with_trials_on_several_nodes_gives_the_same_remaining_trials(nodes: int, crash: float) -> None:
    """A strategy made anew at any point, with the trials that run then, answers as the first one did."""
    truth = landscape("A100", 4, crash=crash)
    strategy = make_strategy(ADAPTIVE, truth.plan)
    history: list[Outcome] = []
    running: list[Proposal] = []
    while not isinstance(step := strategy.propose(history, {trial.key for trial in running}), Finished) or running:
        if len(history) % 5 == 1:
            again = make_strategy(ADAPTIVE, truth.plan)

            assert step == again.propose(history, {trial.key for trial in running})
        if isinstance(step, Proposal) and len(running) < nodes:
            running.append(step)
        else:
            history.append(measured(running.pop(0), truth))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_finalists_are_spread_evenly_over_nodes(count: int) -> None:
    """No node launches a finalist again that it launched more often than another one that is still to come."""
    truth = landscape("H100", 1)
    strategy = make_strategy(ADAPTIVE, truth.plan)
    nodes = [f"node {number}" for number in range(count)]
    history: list[Outcome] = []
    free, running = list(nodes), dict[str, Proposal]()
    while True:
        for node in tuple(free):
            step = strategy.propose(history, {trial.key for trial in running.values()}, node)
            if isinstance(step, Proposal):
                free.remove(node)
                running[node] = step
        if not running:
            break
        node, step = next(iter(running.items()))
        history.append(replace(measured(running.pop(node), truth), node=node))
        free.append(node)
    again = [outcome for outcome in history if outcome.replicate >= 2]
    final = again[:9]
    finalists = {outcome.config_id for outcome in final}
    times = Counter((outcome.node, outcome.config_id) for outcome in final)

    assert 3 == len(finalists)
    assert 10 == len(again), "the choice has a holdout run"
    assert all(3 == sum(times[node, config_id] for node in nodes) for config_id in finalists)
    assert max(times.values()) - min(times[node, each] for node in nodes[:3] for each in finalists) <= 1 + (count < 3)
    assert all(len({node for node in nodes if times[node, each]}) >= min(count, 3) for each in finalists)


def test_configs_that_break_the_slo_are_not_chosen() -> None:
    """The fastest config is not taken when it breaks the SLO."""
    plan = plan_of("A100")
    fast, slow = (planned.config.config_id for planned in plan.feasible[:2])
    history = [
        Outcome(config_id=fast, replicate=0, status="ok", value=200.0, slo_met=False),
        Outcome(config_id=slow, replicate=0, status="ok", value=100.0, slo_met=True),
    ]

    assert slow == make_strategy(ADAPTIVE, plan).choose(history)


def test_what_failed_by_chance_is_tried_again() -> None:
    """A launch that failed for a reason outside the config is made again; when that fails too, it is let be."""
    plan = plan_of("A100")
    plan = plan.model_copy(update={"feasible": plan.feasible[:4]})
    first, *others = (planned.config.config_id for planned in plan.feasible)
    search = ADAPTIVE.model_copy(update={"trials": None, "finalists": 0})
    made = [
        Outcome(config_id=each, replicate=number, status="ok", value=100.0) for each in others for number in range(2)
    ]
    failed = [
        Outcome(config_id=first, replicate=number, status="failed", failure_cause=min(TRANSIENT_CAUSES))
        for number in range(2)
    ]
    strategy = make_strategy(search, plan)
    again, after = (strategy.propose([*made, *failed[:number]], ()) for number in (1, 2))

    assert isinstance(again, Proposal) and (first, 1) == again.key
    assert isinstance(after, Finished) and "every config has been tried" in after.reason


def test_nothing_that_works_is_said() -> None:
    """When every config fails the search ends, and says that none ran."""
    plan = plan_of("V100")
    dead = Landscape(
        name="dead",
        plan=plan,
        metric="output_tok_per_s",
        launches={planned.config.config_id: (None,) * 4 for planned in plan.feasible},
    )
    strategy = make_strategy(SearchSpec(strategy="adaptive", trials=5), plan)
    history = carried_out(strategy, dead)
    end = strategy.propose(history, ())

    assert isinstance(end, Finished) and "no config ran" in end.reason
    assert strategy.choose(history) is None


def test_low_objectives_are_minimized() -> None:
    """For a latency the least is chosen."""
    truth = landscape("A100", 2)
    silent = tuple(planned.model_copy(update={"prediction": None}) for planned in truth.plan.feasible)
    inverse = Landscape(
        name="latency",
        plan=truth.plan.model_copy(update={"feasible": silent}),
        metric="ttft_s_p95",
        launches={
            config: tuple(None if value is None else 100 / value for value in values)
            for config, values in truth.launches.items()
        },
    )
    searches = replay(inverse, "adaptive", trials=14, seeds=4)

    assert np.median([one.regret for one in searches]) <= 0.05


def launches(**values: list[float]) -> list[Outcome]:
    """The outcomes of these configs' launches."""
    return [
        Outcome(config_id=config, replicate=replicate, status="ok", value=value)
        for config, results in values.items()
        for replicate, value in enumerate(results)
    ]


def test_far_behind_is_less_where_launches_are_seen_to_vary_little() -> None:
    """Nothing to compare with: no threshold. One launch: about a quarter behind. Ten steady pairs: about a seventh."""
    steady = {f"c{number}": [99.8, 100.2] for number in range(10)}
    one, many = (
        early_stop_threshold(launches(a=[100]), margin=0.02, sign=1),
        early_stop_threshold(launches(**steady), margin=0.02, sign=1),
    )

    assert early_stop_threshold([], margin=0.02, sign=1) is None
    assert one is not None and 72 < one < 78
    assert many is not None and 82 < many < 88


def test_baselines_anchors_second_launches_and_finalists_are_whole() -> None:
    """Only the first launch of a config that the search chose has a threshold, once there is a best."""
    truth = landscape("A100", 1)
    name = truth.plan.feasible[3].config.name
    search = SearchSpec(strategy="adaptive", trials=10, baseline=(name,), anchor_every=4)
    strategy, history, made = make_strategy(search, truth.plan), list[Outcome](), list[Proposal]()
    while isinstance(step := strategy.propose(history, ()), Proposal):
        history.append(measured(step, truth))
        made.append(step)
    first = [step.replicate == 0 and not step.reason.startswith(("baseline", "anchor")) for step in made]

    assert first == [step.early_stop_threshold is not None for step in made]
    assert 5 < sum(first) < len(made)


def replays(trials: int, seeds: int, *, crash: float = 0.0) -> list[Replay]:
    """A search on a landscape of its own for each hardware and seed."""
    return [
        replay(landscape(hardware, seed, crash=crash), "adaptive", trials=trials, seeds=1)[0]
        for hardware in HARDWARE
        for seed in range(seeds)
    ]


@pytest.mark.integration
def test_ten_trials_hit_far_more_often_than_random() -> None:
    """On a few landscapes of each hardware, most choices are within 1% of the best, within six trials by the median."""
    summary = summarize(replays(10, 2))

    assert summary.hit_rate >= 0.8
    assert summary.median_trials_to_hit is not None and summary.median_trials_to_hit <= 6


@pytest.mark.e2e
@pytest.mark.parametrize(("crash", "least"), [(0.0, 0.94), (0.25, 0.90)])
def test_hit_rates_over_many_landscapes(crash: float, least: float) -> None:
    """Over 50 landscapes of each hardware, hit rates stay where they were measured to be."""
    summary = summarize(replays(10, 50, crash=crash))

    assert summary.hit_rate >= least, summary
