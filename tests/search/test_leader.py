"""Launches that show noise: the first baseline's in the middle and last, and the leader's, on a grid of six configs."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from archive_factory import node_facts, plan_of, sweep_spec
from tokenpeak.records import Plan
from tokenpeak.search.history import Finished, Outcome, Proposal, Strategy, Wait
from tokenpeak.search.remaining import remaining
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SearchSpec

SIX = plan_of(sweep_spec({"max_num_seqs": [1, 2, 4, 8, 16, 32]}), node_facts("node", "NVIDIA L4"))
NAMES = {planned.config.config_id: planned.config.choices["max_num_seqs"] for planned in SIX.feasible}
DEFAULTS = ("max_num_seqs=8",)
"""The baseline, where a test has one."""

Launch = Callable[[str, int], Outcome]
"""What the launch of this name and number, from 1, of its config comes to, without whose it is."""


def ok(value: float, *, slo_met: bool | None = None) -> Outcome:
    """A launch that gave this value."""
    return Outcome(config_id="", replicate=0, status="ok", value=value, slo_met=slo_met, duration_s=100.0)


def failed(cause: str) -> Outcome:
    """A launch that failed."""
    return Outcome(config_id="", replicate=0, status="failed", failure_cause=cause, duration_s=100.0)


def always(**values: float) -> Launch:
    """Launches of a config give the same value, 100 where none is given: `c16=110` of the config 16."""
    return lambda name, _: ok(values.get(f"c{name}", 100.0))


Step = tuple[list[Outcome], list[tuple[str, int]], Proposal | Wait | Finished]
"""History and pending trials, and what was answered."""


def played(
    strategy: Strategy, launch: Launch, *, nodes: int = 1, history: Sequence[Outcome] = ()
) -> tuple[list[Outcome], list[Step]]:
    """The history of a sweep on so many nodes, whose trials end in the order in which they began."""
    made, running, steps = list(history), list[Proposal](), list[Step]()
    for _ in range(500):
        pending = [trial.key for trial in running]
        step = strategy.propose(made, pending)
        steps.append((made.copy(), pending, step))
        assert not isinstance(step, Wait) or running, "nothing runs that could end the wait"
        if isinstance(step, Proposal):
            assert step.key not in {*pending, *((one.config_id, one.replicate) for one in made)}
            running.append(step)
        if running and (len(running) == nodes or not isinstance(step, Proposal)):
            ended = running.pop(0)
            number = 1 + sum(outcome.config_id == ended.config_id for outcome in made)
            outcome = launch(NAMES[ended.config_id], number)
            made.append(replace(outcome, config_id=ended.config_id, replicate=ended.replicate, holdout=ended.holdout))
        elif isinstance(step, Finished):
            return made, steps
    raise AssertionError("the search does not end")


def names(outcomes: Sequence[Outcome]) -> list[str]:
    """The configs in the order of their launches."""
    return [NAMES[outcome.config_id] for outcome in outcomes]


def launched(launch: Launch, plan: Plan = SIX, **search: object) -> list[str]:
    """The configs that a grid launches on one node, in order."""
    spec = SearchSpec.model_validate({"baseline": DEFAULTS, **search})
    return names(played(make_strategy(spec, plan), launch)[0])


def test_order_of_a_grid() -> None:
    """The baseline first, in the middle and last; each other config once; the leader twice more, before the last."""
    order = launched(always(c16=110.0))

    assert 10 == len(order)
    assert [0, 3, 9] == [place for place, name in enumerate(order) if name == "8"]
    assert ["16", "16"] == order[7:9]
    assert {"1", "2", "4", "16", "32"} == set(order[1:3] + order[4:7])


def test_without_a_baseline_the_first_of_the_order_is_launched_again() -> None:
    """It takes the baseline's place in the middle and last."""
    order = launched(always(), baseline=[])
    leader = next(name for name in NAMES.values() if name != order[0])
    order = launched(always(**{f"c{leader}": 110.0}), baseline=[])

    assert [0, 3, 9] == [place for place, name in enumerate(order) if name == order[0]]
    assert [leader, leader] == order[7:9]


def test_where_the_baseline_leads_the_runner_up_is_launched_again() -> None:
    """So the baseline's three launches stand against two."""
    order = launched(always(c8=120.0, c2=110.0))

    assert ["2", "8"] == order[7:]
    assert Counter(order) == {"8": 3, "2": 2, "1": 1, "4": 1, "16": 1, "32": 1}


def test_who_is_ahead_after_a_lucky_launch_is_launched_in_its_turn() -> None:
    """One launch of 16 was lucky: its second shows it, and 4, which is then ahead, has three launches."""

    def launch(name: str, number: int) -> Outcome:
        return ok({"16": 130.0 if number == 1 else 90.0, "4": 115.0}.get(name, 100.0))

    order = launched(launch)

    assert ["16", "4", "4", "8"] == order[7:]


def test_at_most_six_launches_look_for_the_leader() -> None:
    """Where the first launch of every config is lucky, six are launched again, and then the baseline."""

    def launch(name: str, number: int) -> Outcome:
        return ok(50.0 if name == "8" else (120.0, 80.0, 60.0)[min(number, 3) - 1])

    order = launched(launch)

    assert 6 + 1 + 6 + 1 == len(order)
    assert "8" not in order[7:-1]
    assert "8" == order[-1]


@pytest.mark.parametrize("cause", ["out_of_memory", "port_taken"])
def test_failure_of_the_leader_in_its_second_launch(cause: str) -> None:
    """By its own fault: the next best leads, and is chosen. For another reason: it is launched again."""

    def launch(name: str, number: int) -> Outcome:
        if name == "16" and number == 2:
            return failed(cause)
        return ok({"16": 130.0, "4": 115.0}.get(name, 100.0))

    strategy = make_strategy(SearchSpec(baseline=DEFAULTS), SIX)
    history, _ = played(strategy, launch)
    own_fault = cause == "out_of_memory"

    assert (["16", "4", "4", "8"] if own_fault else ["16", "16", "16", "8"]) == names(history)[7:]
    assert ("4" if own_fault else "16") == NAMES[strategy.choose(history) or ""]


def test_who_breaks_the_slo_does_not_lead() -> None:
    """The fastest is left out from the launch on that breaks it, also where another held it."""

    def launch(name: str, number: int) -> Outcome:
        if name == "16":
            return ok(130.0, slo_met=number == 1)
        return ok(115.0 if name == "4" else 100.0, slo_met=True)

    strategy = make_strategy(SearchSpec(baseline=DEFAULTS), SIX)
    history, _ = played(strategy, launch)

    assert ["16", "4", "4", "8"] == names(history)[7:]
    assert "4" == NAMES[strategy.choose(history) or ""]


def test_a_baseline_that_cannot_work_is_replaced() -> None:
    """The second of the order is then launched in the middle and last; nothing is launched twice for its own fault."""
    order = launched(
        lambda name, _: failed("out_of_memory") if name == "8" else ok(110.0 if name == "16" else 100.0),
        baseline=["max_num_seqs=8", "max_num_seqs=2"],
    )

    assert ["8", "2"] == order[:2]
    assert 1 == order.count("8")
    assert 3 == order.count("2")
    assert "2" == order[-1]


@pytest.mark.parametrize(
    ("search", "number"),
    [
        ({"replicates": 3}, 18),
        ({"replicates": 2}, 12 + 1 + 1),
        ({"anchor_every": 2}, 6 + 2 + 2),
        ({"anchor_every": None}, 6 + 2),
        ({"finalists": 0}, 6 + 2),
        ({"anchor_every": None, "finalists": 0}, 6),
        ({"finalists": 2}, 6 + 1 + 6 + 1 + 1),
        ({"finalists": 1}, 6 + 1 + 2 + 1 + 1),
        ({"trials": 4}, 4 + 2 + 2),
        ({"trials": 2}, 2 + 2 + 2),
        ({"trials": 1}, 1),
        ({"time": 650.0}, 6),
    ],
)
def test_number_of_launches(search: Mapping[str, object], number: int) -> None:
    """What replicates and anchors give already is not added; trials count without, budgets of time with these."""
    spec = SearchSpec.model_validate({"baseline": DEFAULTS, "strategy": "random", **search})
    strategy = make_strategy(spec, SIX)
    first, *others = launched(always(), strategy="random", finalists=0, anchor_every=None)
    history, _ = played(strategy, always(**{f"c{others[0]}": 110.0, f"c{others[2]}": 108.0}))

    assert number == len(history)
    assert first == names(history)[0]
    if spec.trials is not None:
        assert spec.trials == strategy.trials_made(history)


def as_classes(*classes: Collection[str]) -> Plan:
    """The six configs, those of a collection in one class."""
    key = {name: str(number) for number, names_of in enumerate(classes) for name in names_of}
    return SIX.model_copy(
        update={
            "feasible": tuple(
                planned.model_copy(update={"config_class": key.get(NAMES[planned.config.config_id], name)})
                for name, planned in NAMES_AND_CONFIGS
            )
        }
    )


NAMES_AND_CONFIGS = [(f"own {planned.config.config_id}", planned) for planned in SIX.feasible]


def test_launches_of_a_class_are_one_configs() -> None:
    """Three that cannot differ have three launches together; a lucky one of them does not make them lead."""
    plan = as_classes(("2", "4", "16"), ("1", "32"))
    values = {"2": 130.0, "4": 90.0, "16": 90.0, "1": 110.0, "32": 106.0}
    strategy = make_strategy(SearchSpec(baseline=DEFAULTS), plan)
    history, _ = played(strategy, lambda name, _: ok(values.get(name, 100.0)))
    of_three, _ = played(strategy, always(c2=130.0, c4=130.0, c16=130.0))

    assert ["1", "8"] == names(history)[7:], "the class of two has a third launch, by the first of the plan"
    assert "1" == NAMES[strategy.choose(history) or ""]
    assert 6 + 2 == len(of_three), "no launch is added for a class with three"


def test_what_cannot_differ_is_not_launched_again() -> None:
    """One config, or one class of configs, is compared with nothing."""
    alone = SIX.model_copy(update={"feasible": SIX.feasible[3:4]})

    assert ["8"] == launched(always(), alone)
    assert set(NAMES.values()) == set(same := launched(always(c16=110.0), as_classes(tuple(NAMES.values()))))
    assert 6 == len(same)


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("search", [{}, {"finalists": 2}, {"trials": 4}, {"replicates": 2}, {"strategy": "adaptive"}])
def test_resume_continues_as_if_not_interrupted(nodes: int, search: Mapping[str, object]) -> None:
    """At each moment a strategy made anew answers as the first one did; and the sweep ends."""
    spec = SearchSpec.model_validate({"baseline": DEFAULTS, **search})

    def launch(name: str, number: int) -> Outcome:
        return ok({"16": 130.0 if number == 1 else 90.0, "4": 115.0}.get(name, 100.0) + number)

    whole, steps = played(make_strategy(spec, SIX), launch, nodes=nodes)

    assert len(whole) <= len(steps)
    assert 3 <= names(whole).count("8")
    for history, pending, step in steps:
        assert step == make_strategy(spec, SIX).propose(history, pending)


def test_two_nodes_share_the_leaders_launches() -> None:
    """The leader's two further launches run at the same time, and the last anchor begins when they have ended."""
    strategy = make_strategy(SearchSpec(baseline=DEFAULTS), SIX)
    history, steps = played(strategy, always(c16=110.0), nodes=2)
    last = steps[-2]

    assert 10 == len(history)
    assert "8" == names(history)[-1]
    assert any(
        isinstance(step, Proposal) and NAMES[step.config_id] == "16" and [NAMES[key[0]] for key in pending] == ["16"]
        for _, pending, step in steps
    )
    assert isinstance(last[2], Wait | Finished) or not last[1]


@pytest.mark.parametrize("leader", ["16", "2"])
@pytest.mark.parametrize(
    "search", [{}, {"replicates": 2}, {"trials": 5}, {"finalists": 2}, {"finalists": 1}, {"anchor_every": 2}]
)
def test_launches_to_come_are_counted(search: Mapping[str, object], leader: str) -> None:
    """What is said before the first launch is what is made, and at each moment what ended and what is to come."""
    spec = sweep_spec({"max_num_seqs": [8]}).model_copy(
        update={"search": SearchSpec.model_validate({"baseline": DEFAULTS, **search})}
    )
    strategy = make_strategy(spec.search, SIX)
    tried = names(played(strategy, always())[0])
    values = {f"c{leader if leader in tried else tried[1]}": 110.0, "c8": 90.0}
    history, _ = played(strategy, always(**values))
    total = remaining(spec, SIX, ())

    assert [total] * (len(history) + 1) == [
        number + remaining(spec, SIX, history[:number]) for number in range(len(history) + 1)
    ]
    assert total == len(history)


@pytest.mark.parametrize("search", [{}, {"trials": 4}, {"finalists": 1}, {"finalists": 0}])
def test_adaptive_searches_launch_the_baseline_three_times(search: Mapping[str, object]) -> None:
    """First, in the middle and last, unless it is a finalist: then the finals launch it."""
    spec = SearchSpec.model_validate({"strategy": "adaptive", "baseline": DEFAULTS, **search})
    history, steps = played(make_strategy(spec, SIX), always(c16=130.0, c8=50.0))
    order = names(history)

    assert "8" == order[0]
    assert 3 == order.count("8")
    assert "8" == order[-1], order
    if spec.trials == 4:
        assert "8" == order[2]
    finals = [step for *_, step in steps if isinstance(step, Proposal) and "finalist" in step.reason]
    assert (spec.finalists == 0) == (not finals)
