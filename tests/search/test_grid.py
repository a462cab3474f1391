"""Grid and random search: a fixed randomized order, blocks of replicates, budgets."""

from dataclasses import replace

import pytest
from landscape_factory import plan_of

from tokenpeak.search.history import Finished, Outcome, Proposal, Strategy
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SearchSpec


def carried_out(strategy: Strategy, *, failing: frozenset[str] = frozenset(), most: int = 500) -> list[Outcome]:
    """The history of a sweep in which every trial takes 100 s and gives 1."""
    history: list[Outcome] = []
    while len(history) < most and isinstance(step := strategy.propose(history, ()), Proposal):
        fails = step.config_id in failing
        history.append(
            Outcome(
                config_id=step.config_id,
                replicate=step.replicate,
                status="failed" if fails else "ok",
                value=None if fails else 1.0,
                failure_cause="out_of_memory" if fails else None,
                duration_s=100.0,
            )
        )
    return history


def test_every_config_is_tried_in_each_block() -> None:
    """Two replicates are two blocks, each with every config once, in an order that the seed fixes."""
    plan = plan_of("V100")
    search = SearchSpec(replicates=2, anchor_every=None)
    history = carried_out(make_strategy(search, plan))
    ids = {planned.config.config_id for planned in plan.feasible}

    assert ids == {outcome.config_id for outcome in history[:36]} == {outcome.config_id for outcome in history[36:]}
    assert [0] * 36 + [1] * 36 == [outcome.replicate for outcome in history]
    assert history == carried_out(make_strategy(search, plan))
    assert history != carried_out(make_strategy(search.model_copy(update={"seed": 1}), plan))


@pytest.mark.parametrize("fails_again", [True, False])
def test_a_failure_that_says_nothing_has_one_more_launch_at_the_end(*, fails_again: bool) -> None:
    """A config whose only launch met a full GPU is launched again, after all others, whatever comes of it."""
    plan = plan_of("V100")
    strategy = make_strategy(SearchSpec(anchor_every=None, finalists=0), plan)
    first, *others = carried_out(strategy)
    failed = replace(first, status="failed", value=None, failure_cause="vram_taken")
    step = strategy.propose([failed, *others], ())

    assert isinstance(step, Proposal)
    assert (first.config_id, 1) == step.key
    assert isinstance(strategy.propose([failed, *others], {step.key}), Finished)
    second = replace(failed, replicate=1) if fails_again else replace(first, replicate=1)
    assert isinstance(strategy.propose([failed, *others, second], ()), Finished)


def test_configs_that_achieve_nothing_are_no_finalists() -> None:
    """Where no request of any config was good, goodput is zero everywhere: the search ends without a choice."""
    strategy = make_strategy(
        SearchSpec(finalists=2, anchor_every=None), plan_of("V100"), metric="goodput_request_per_s"
    )
    history = [replace(outcome, value=0.0) for outcome in carried_out(strategy, most=36)]
    step = strategy.propose(history, ())

    assert Finished(reason="every config has been tried; no config ran within the SLO") == step
    assert strategy.choose(history) is None


def test_the_anchor_comes_back() -> None:
    """The first config of the order is launched again after each ten trials, itself counted as the first of them."""
    history = carried_out(make_strategy(SearchSpec(anchor_every=10, finalists=0), plan_of("V100")))
    anchor = history[0].config_id

    assert [0, 10, 21, 32] == [index for index, outcome in enumerate(history) if outcome.config_id == anchor]


@pytest.mark.parametrize(
    ("limits", "made"), [({"trials": 7}, 7 + 2 + 2), ({"time": "1000s"}, 10), ({"gpu_hours": 1.0}, 9)]
)
def test_budgets_end_a_search(limits: dict[str, object], made: int) -> None:
    """Trials, time on the node and GPU hours (four GPUs) each bound it; launches that show noise come on top."""
    search = SearchSpec.model_validate({"strategy": "random", **limits})

    assert made == len(carried_out(make_strategy(search, plan_of("V100"))))


def test_interrupted_trials_are_made_again() -> None:
    """An interrupted trial does not count."""
    strategy = make_strategy(SearchSpec(), plan_of("V100"))
    first = strategy.propose([], ())
    assert isinstance(first, Proposal)
    interrupted = Outcome(config_id=first.config_id, replicate=0, status="interrupted")

    assert first == strategy.propose([interrupted], ())


def test_one_of_each_class_comes_first() -> None:
    """With as many trials as classes, no two configs that cannot differ are launched."""
    plan = plan_of("V100")
    halves = plan.model_copy(
        update={
            "feasible": tuple(
                planned.model_copy(update={"config_class": str(index // 2)})
                for index, planned in enumerate(plan.feasible)
            )
        }
    )
    classes = {planned.config.config_id: planned.config_class for planned in halves.feasible}
    number = len(set(classes.values()))
    history = carried_out(make_strategy(SearchSpec(anchor_every=None, finalists=0), halves))

    assert number == len({classes[outcome.config_id] for outcome in history[:number]})
    assert len(halves.feasible) == len(history)
