"""One budget for several searches, played in virtual time: nodes ask, launch, wait and leave as a sweep's do."""

import heapq
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from landscape_factory import HARDWARE, landscape
from landscape_factory import plan_of as plan_of_landscape

from archive_factory import node_facts, plan_of, sweep_spec
from tokenpeak.errors import PlanError
from tokenpeak.records import Plan
from tokenpeak.search.history import Finished, Outcome, Proposal, Wait
from tokenpeak.search.remaining import trial_count
from tokenpeak.search.searches import Searches
from tokenpeak.spec.sweep import SearchSpec, SweepSpec

MANY: dict[str, list[object]] = {"max_num_seqs": [*range(8, 48)]}
FEW: dict[str, list[object]] = {"max_num_seqs": [8, 16, 32, 64]}


@dataclass
class Played:
    """A sweep so far: what ended, in order, and what runs."""

    histories: dict[str, list[Outcome]]
    pending: dict[str, set[tuple[str, int]]]
    ended: list[tuple[str, Outcome]] = field(default_factory=list)

    def launches(self, hardware: str) -> int:
        return len(self.histories[hardware])


def play(
    spec: SweepSpec,
    plans: Sequence[Plan],
    nodes: Mapping[str, int],
    *,
    speeds: Mapping[str, Mapping[str, float]] | None = None,
    minutes: Mapping[str, float] | None = None,
    before: Sequence[tuple[str, Outcome]] = (),
    lost: Sequence[str] = (),
    seed: int = 0,
) -> Played:
    """Nodes of each kind make trials until nobody makes any more; those `lost` fail before their first."""
    lots = random.Random(seed)
    searches = Searches(spec, plans)
    names = [plan.hardware for plan in plans]
    played = Played({name: [] for name in names}, {name: set() for name in names})
    for name, outcome in before:
        played.histories[name].append(outcome)
    searches.settle(played.histories)
    present = {name: {f"{name} {number}" for number in range(nodes[name])} for name in names}
    events: list[tuple[float, str, str, Proposal | None]] = []
    idle = [(name, node) for name in names for node in sorted(present[name])]
    now = 0.0

    def leave(name: str, node: str) -> None:
        present[name].discard(node)
        if not present[name]:
            searches.leave(name, played.histories)

    for name in lost:
        for node in sorted(present[name]):
            idle.remove((name, node))
            leave(name, node)
    while idle or events:
        waiting = []
        for name, node in idle:
            answer = searches.propose(name, played.histories, played.pending, node)
            if isinstance(answer, Finished) and played.pending[name]:
                answer = Wait(reason="another node's trial may be lost")
            if isinstance(answer, Proposal):
                played.pending[name].add(answer.key)
                took = lots.uniform(0.5, 1.5) * (minutes or {}).get(name, 1.0)
                heapq.heappush(events, (now + took, name, node, answer))
            elif isinstance(answer, Wait):
                waiting.append((name, node))
            else:
                leave(name, node)
        idle = waiting
        if not events:
            asked_again = [
                (name, node)
                for name, node in idle
                if not isinstance(searches.propose(name, played.histories, played.pending, node), Wait)
            ]
            assert asked_again or not idle, "nodes wait for ever"
            continue
        then, name, node, proposal = heapq.heappop(events)
        assert proposal is not None
        played.pending[name].discard(proposal.key)
        outcome = Outcome(
            config_id=proposal.config_id,
            replicate=proposal.replicate,
            status="ok",
            value=(speeds or {}).get(name, {}).get(proposal.config_id, 100.0),
            node=node,
            duration_s=(then - now) * 60,
        )
        now = then
        played.histories[name].append(outcome)
        played.ended.append((name, outcome))
        idle.append((name, node))
    return played


def sweep(axes: Mapping[str, Mapping[str, list[object]]], **search: object) -> tuple[SweepSpec, list[Plan]]:
    """A spec with this search, and a plan with axes of its own on each kind of hardware."""
    limits = SearchSpec.model_validate(
        {"budget": "per_sweep", "anchor_every": None, "baseline": [], "finalists": 0, **search}
    )
    spec = sweep_spec(FEW).model_copy(update={"search": limits})
    plans = [
        plan_of(sweep_spec(dict(own)), node_facts(f"node-{number}", gpu))
        for number, (gpu, own) in enumerate(axes.items(), start=1)
    ]
    return spec, plans


def test_what_a_search_leaves_goes_to_the_others() -> None:
    """A matrix of four configs is made whole; of 30 trials the other kind gets the 26 that are left."""
    spec, plans = sweep({"NVIDIA L4": FEW, "NVIDIA A10": MANY}, trials=30)
    names = [plan.hardware for plan in plans]
    played = play(spec, plans, {names[0]: 1, names[1]: 3})

    assert [4, 26] == [played.launches(name) for name in names]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("cut", [0, 5, 17, 33])
def test_launches_that_show_noise_come_on_top_of_a_shared_budget(number: int, cut: int) -> None:
    """Of 30 trials none is lost; each kind launches its anchor three times; nobody waits for ever."""
    spec, plans = sweep({"NVIDIA L4": FEW, "NVIDIA A10": MANY}, trials=30, anchor_every=16, finalists=None)
    names = [plan.hardware for plan in plans]
    nodes = dict.fromkeys(names, number)
    fast = {plan.hardware: {plan.feasible[2].config.config_id: 110.0} for plan in plans}
    played = play(spec, plans, nodes, speeds=fast)
    resumed = play(spec, plans, nodes, speeds=fast, before=played.ended[:cut], seed=1)

    for each in (played, resumed):
        trials = [sum(outcome.replicate == 0 for outcome in each.histories[name]) for name in names]
        anchors = [Counter(outcome.config_id for outcome in each.histories[name]) for name in names]

        assert [4, 26] == trials
        assert all(3 <= count[each.histories[name][0].config_id] for name, count in zip(names, anchors, strict=True))
        assert all(count.total() <= made + 6 + 3 for count, made in zip(anchors, trials, strict=True))


@pytest.mark.parametrize("trials", [3, 31, 200])
def test_no_trial_of_the_budget_is_lost_or_doubled(trials: int) -> None:
    """All of it is used, in equal shares, unless every matrix is made whole before."""
    spec, plans = sweep({"NVIDIA L4": MANY, "NVIDIA A10": MANY}, trials=trials)
    names = [plan.hardware for plan in plans]
    played = play(spec, plans, {names[0]: 2, names[1]: 4})
    made = [played.launches(name) for name in names]

    assert min(trials, 80) == sum(made)
    assert abs(made[0] - made[1]) <= 1


@pytest.mark.parametrize("cut", [1, 13, 29])
def test_resumed_sweep_keeps_to_the_budget(cut: int) -> None:
    """Wherever a sweep was cut off, what is left of 30 trials is made, and not one more."""
    spec, plans = sweep({"NVIDIA L4": FEW, "NVIDIA A10": MANY, "NVIDIA T4": MANY}, trials=30)
    names = [plan.hardware for plan in plans]
    nodes = dict.fromkeys(names, 2)
    whole = play(spec, plans, nodes)
    resumed = play(spec, plans, nodes, before=whole.ended[:cut], seed=1)

    assert 30 == sum(whole.launches(name) for name in names) == sum(resumed.launches(name) for name in names)
    assert 4 == resumed.launches(names[0])


def test_share_of_lost_nodes_goes_to_the_others() -> None:
    """Where no node of a kind is left, its trials are made on the others."""
    spec, plans = sweep({"NVIDIA L4": MANY, "NVIDIA A10": MANY}, trials=20)
    names = [plan.hardware for plan in plans]
    played = play(spec, plans, {names[0]: 2, names[1]: 2}, lost=[names[0]])

    assert [0, 20] == [played.launches(name) for name in names]


def test_gpu_hours_are_of_the_whole_sweep() -> None:
    """Half a GPU-hour over two kinds: what the small matrix leaves is used, a trial more at most."""
    spec, plans = sweep({"NVIDIA L4": FEW, "NVIDIA A10": MANY}, gpu_hours=0.5)
    names = [plan.hardware for plan in plans]
    played = play(spec, plans, {names[0]: 1, names[1]: 1}, minutes=dict.fromkeys(names, 1.0))
    spent_h = sum(outcome.duration_s for _, outcome in played.ended) / 3600

    assert 4 == played.launches(names[0])
    assert 0.5 - 2.5 / 60 <= spent_h <= 0.5 + 1.5 / 60


@pytest.mark.integration
def test_adaptive_searches_share_a_budget() -> None:
    """Searches that stop by themselves leave trials, finalists come on top, and the sum stays within the budget."""
    kinds = HARDWARE[:2]
    plans = [plan_of_landscape(kind) for kind in kinds]
    limits = SearchSpec(strategy="adaptive", trials=24, budget="per_sweep", finalists=2)
    spec = sweep_spec(FEW).model_copy(update={"search": limits})
    speeds = {
        plan.hardware: {key: values[0] or 0.0 for key, values in landscape(kind, 1).launches.items()}
        for plan, kind in zip(plans, kinds, strict=True)
    }
    played = play(spec, plans, {plan.hardware: 2 for plan in plans}, speeds=speeds)
    screened = [sum(outcome.replicate < 2 for outcome in played.histories[plan.hardware]) for plan in plans]

    assert 20 <= sum(screened) <= 24
    assert all(played.launches(plan.hardware) > made for plan, made in zip(plans, screened, strict=True))


def test_count_of_trials_to_come_is_of_the_budget() -> None:
    """The progress line begins with the budget, and follows what a search leaves."""
    spec, plans = sweep({"NVIDIA L4": FEW, "NVIDIA A10": MANY}, trials=30)
    played = play(spec, plans, {plan.hardware: 1 for plan in plans})
    small, large = (plan.hardware for plan in plans)
    first = [(small, played.histories[small]), (large, played.histories[large][:10])]

    assert 19 == trial_count(spec, [(plan, ()) for plan in plans]).total
    assert 30 == trial_count(spec, [(plan, history) for plan, (_, history) in zip(plans, first, strict=True)]).total


def test_fewer_trials_than_kinds() -> None:
    """A budget that leaves a kind without a trial is refused before anything is touched."""
    spec, plans = sweep({"NVIDIA L4": FEW, "NVIDIA A10": MANY}, trials=1)
    with pytest.raises(PlanError, match="less than one trial for each of its 2 kinds of hardware"):
        Searches(spec, plans)
