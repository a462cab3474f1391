"""The highest value that survives the load is found in few launches, and the search goes on at it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tokenpeak.plan.matrix import build_plan
from tokenpeak.records import Gpu, NodeFacts, Plan
from tokenpeak.search.highest import (
    Attempt,
    as_predicted,
    climb,
    climb_words,
    climbers,
    next_highest,
    survivor,
)
from tokenpeak.search.history import Finished, Outcome, Proposal, Strategy, Wait
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.axes import USUAL
from tokenpeak.spec.sweep import SearchSpec, parse_spec

AXIS = "gpu_memory_utilization"
SHARES = USUAL[AXIS]


def found_for(limit: float) -> tuple[float | None, int]:
    """The answer and its launches on a machine where values up to `limit` survive."""
    attempts: list[Attempt] = []
    while (value := next_highest(attempts, SHARES)) is not None:
        attempts.append(Attempt(value=value, survived=value <= limit))
    return survivor(attempts, SHARES), len(attempts)


@pytest.mark.parametrize("limit", SHARES)
def test_every_limit_is_found(limit: float) -> None:
    """Whatever the limit, it is found to the step, in at most six launches."""
    value, launches = found_for(limit)

    assert limit == value
    assert launches <= 6


def plan_of(**axes: object) -> Plan:
    """The plan of a sweep on an L4 whose axes are these, with the engine's defaults as a baseline."""
    spec = parse_spec(
        {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct"},
            "axes": axes,
            "fixed": {"name": "fixed", "flags": {"max_model_len": 2048}},
            "extra_configs": [{"name": "defaults"}],
            "workloads": [
                {
                    "workload": {"kind": "synthetic", "name": "w", "input_tokens": 512, "output_tokens": 64},
                    "levels": [{"concurrency": 64, "requests": 400}],
                }
            ],
        },
        Path("highest.yml"),
    )
    gpu = Gpu(index=0, name="NVIDIA L4", vram_bytes=24 * 2**30, compute_capability="8.9")
    return build_plan(spec, [NodeFacts(node="node", source="declared", gpus=(gpu,), engine_version="0.32.0")])[0]


def grid_plan() -> Plan:
    """Two batch sizes at the highest share of the memory that survives."""
    return plan_of(**{AXIS: "highest", "max_num_batched_tokens": [2048, 8192]})


def outcome(plan: Plan, key: tuple[str, int], limit: float, *, cause: str = "out_of_memory") -> Outcome:
    """What a launch comes to on a machine where shares up to `limit` survive the load."""
    config = next(one.config for one in plan.feasible if one.config.config_id == key[0])
    survived = float(config.choices.get(AXIS, "0")) <= limit
    return Outcome(
        config_id=key[0],
        replicate=key[1],
        status="ok" if survived else "failed",
        value=100.0 + len(config.name) if survived else None,
        failure_cause=None if survived else cause,
        duration_s=60.0,
    )


Step = tuple[list[Outcome], set[tuple[str, int]], Proposal | Wait | Finished]
"""What a strategy was given, and what it answered."""


def carried_out(
    strategy: Strategy, plan: Plan, limit: float, *, nodes: int = 1, steps: list[Step] | None = None
) -> tuple[list[Outcome], list[Proposal]]:
    """A sweep on so many nodes; its outcomes and what was proposed, in order."""
    made, proposed, running = list[Outcome](), list[Proposal](), list[Proposal]()
    for _ in range(200):
        pending = {trial.key for trial in running}
        step = strategy.propose(made, pending)
        if steps is not None:
            steps.append((made.copy(), pending, step))
        if isinstance(step, Proposal):
            running.append(step)
            proposed.append(step)
        if running and (len(running) == nodes or not isinstance(step, Proposal)):
            made.append(outcome(plan, running.pop(0).key, limit))
        elif isinstance(step, Finished):
            return made, proposed
    raise AssertionError("the search does not end")


def names(plan: Plan, proposed: Sequence[Proposal]) -> list[str]:
    """The configs' names."""
    name_of = {one.config.config_id: one.config.name for one in plan.feasible}
    return [name_of[proposal.config_id] for proposal in proposed]


@pytest.mark.parametrize("strategy", ["grid", "random", "adaptive"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_search_goes_on_at_the_value_found(strategy: str, nodes: int) -> None:
    """Every config is tried at the value found and, but for the one that climbed, at no other."""
    plan = grid_plan()
    search = SearchSpec.model_validate({"strategy": strategy, "finalists": 0, "anchor_every": None})
    history, proposed = carried_out(make_strategy(search, plan), plan, 0.93, nodes=nodes)
    tried = set(names(plan, proposed))
    climbing = {name for name in tried if name.endswith("8192")}

    assert {f"{AXIS}=0.93, max_num_batched_tokens=2048", "defaults"} == tried - climbing
    assert {f"{AXIS}={value}, max_num_batched_tokens=8192" for value in (0.91, 0.93, 0.94, 0.95)} == climbing
    assert "defaults" == names(plan, proposed)[0]
    assert len(history) == len({(one.config_id, one.replicate) for one in history})


@pytest.mark.parametrize("nodes", [1, 2])
def test_resume_goes_on_as_it_would_have(nodes: int) -> None:
    """A strategy made anew at any point, with the trials that run then, answers as the first one did."""
    plan = grid_plan()
    search = SearchSpec(strategy="adaptive", finalists=2)
    steps: list[Step] = []
    whole, _ = carried_out(make_strategy(search, plan), plan, 0.93, nodes=nodes, steps=steps)

    assert len(steps) > len(whole)
    for history, pending, step in steps:
        assert step == make_strategy(search, plan).propose(history, pending)


def climbed(plan: Plan, *launches: tuple[float, str | None]) -> float | None:
    """The value to launch next after launches at these values with these causes of failure; None: it survived."""
    ids = {float(rung.config.choices[AXIS]): rung.config.config_id for ladder in climbers(plan)[:1] for rung in ladder}
    history = [
        Outcome(
            config_id=ids[value],
            replicate=number,
            status="ok" if cause is None else "failed",
            value=1.0 if cause is None else None,
            failure_cause=cause,
        )
        for number, (value, cause) in enumerate(launches)
    ]
    made = climb(plan, history)
    return made.next_value if made else None


def test_causes_that_say_nothing_of_the_value_do_not_count_once() -> None:
    """A launch that met a taken port is made again; a value whose launches hang twice is taken for too high."""
    plan = grid_plan()

    assert 0.95 == climbed(plan, (0.95, "port_taken"))
    assert 0.91 == climbed(plan, (0.95, "hung"), (0.95, "hung"))


def test_nothing_that_survives_ends_the_search() -> None:
    """When every value fails the search says so, and takes none."""
    plan = grid_plan()
    strategy = make_strategy(SearchSpec(), plan)
    history, _ = carried_out(strategy, plan, 0.5)
    end = strategy.propose(history, ())

    assert isinstance(end, Finished) and "no gpu_memory_utilization launched" in end.reason
    assert strategy.choose(history) is None


def test_trials_bound_the_climb_and_the_search_together() -> None:
    """With seven trials of which the climb and the baseline take five, two are left."""
    plan = plan_of(**{AXIS: "highest", "max_num_batched_tokens": [1024, 2048, 4096, 8192]})
    for trials in (3, 7):
        steps: list[Step] = []
        search = SearchSpec(trials=trials, anchor_every=None, finalists=0)
        _, proposed = carried_out(make_strategy(search, plan), plan, 0.93, steps=steps)
        end = steps[-1][2]

        assert trials == len(proposed)
        assert isinstance(end, Finished) and end.reason.startswith("all trials are made")


@pytest.mark.parametrize("nodes", [1, 2])
def test_noise_is_known_at_the_value_found(nodes: int) -> None:
    """The baseline is launched three times, the last of them in the end, and the leader as often."""
    plan = grid_plan()
    _, proposed = carried_out(make_strategy(SearchSpec(baseline=("defaults",)), plan), plan, 0.93, nodes=nodes)
    launched = names(plan, proposed)

    assert 3 == launched.count("defaults")
    assert "defaults" == launched[0] == launched[-1]
    assert [1, 3] == sorted(launched.count(f"{AXIS}=0.93, max_num_batched_tokens={size}") for size in (2048, 8192))


def test_what_was_found_is_said() -> None:
    """Value, launches, the config that climbed, and what failed with its cause."""
    plan = grid_plan()
    history, _ = carried_out(make_strategy(SearchSpec(), plan), plan, 0.93)

    assert (
        "gpu_memory_utilization=0.93 is the highest of 0.8 to 0.98 that launched and carried the whole load, found in "
        "4 launches of max_num_batched_tokens=8192; failed: 0.95 (out of memory), 0.94 (out of memory). "
        "The other configs are tried at that value alone."
    ) == climb_words(plan, history)
    assert climb_words(plan, history[:2]) == (
        "The highest gpu_memory_utilization of 0.8 to 0.98 is not found yet, after 1 launch of "
        "max_num_batched_tokens=8192; failed: 0.95 (out of memory)."
    )


def test_plan_counts_few_launches() -> None:
    """Of 19 values and two batch sizes, two configs and the baseline are searched after about five launches."""
    plan = grid_plan()

    assert 39 == len(plan.feasible)
    assert 3 == len(as_predicted(plan).feasible)
