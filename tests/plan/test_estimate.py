from pathlib import Path

import pytest

from node_models import LLAMA, serving
from tokenpeak.plan.estimate import Estimate
from tokenpeak.plan.matrix import build_plan, served_models
from tokenpeak.records import Gpu, NodeFacts, Plan
from tokenpeak.search.history import Outcome, Proposal
from tokenpeak.search.remaining import cost_of, remaining
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SweepSpec, parse_spec


def planned(
    nodes: int = 1, gpu: str = "NVIDIA L4", *, simulated: bool = False, **keys: object
) -> tuple[SweepSpec, Plan, list[NodeFacts]]:
    raw = {
        "fixed": {"name": "fixed", "flags": {"max_model_len": 4096}},
        "axes": {"max_num_seqs": [8, 16], "enforce_eager": [True, False]},
        "workloads": [
            {
                "workload": {"kind": "synthetic", "name": "s", "input_tokens": 100, "output_tokens": 50},
                "levels": [{"concurrency": 8, "requests": 32}, {"rate_per_s": 0.5, "requests": 30}],
            }
        ],
        **keys,
    }
    spec = parse_spec(raw, Path("t.yml"))
    facts = [
        NodeFacts(node=f"n{i}", source="declared", gpus=(Gpu(index=0, name=gpu),), simulated=simulated)
        for i in range(nodes)
    ]
    (plan,) = build_plan(spec, serving(LLAMA, *facts))
    return spec, plan, facts


def cost(nodes: int = 1, gpu: str = "NVIDIA L4", *, simulated: bool = False, **keys: object) -> Estimate:
    spec, plan, facts = planned(nodes, gpu, simulated=simulated, **keys)
    return cost_of(spec, plan, facts, served_models([plan]))


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"finalists": 0},
        {"anchor_every": None},
        {"anchor_every": 2},
        {"trials": 3},
        {"replicates": 2},
        {"replicates": 5},
        {"replicates": 5, "anchor_every": 1},
        {"finalists": 3, "replicates": 4},
        {"finalists": 3, "trials": 2},
        {"strategy": "adaptive", "finalists": 9, "anchor_every": None},
        {"strategy": "adaptive", "trials": 3, "anchor_every": None},
        {"strategy": "adaptive", "trials": 3, "finalists": 1, "baseline": ["max_num_seqs=8, enforce_eager=True"]},
        {"strategy": "adaptive", "baseline": ["max_num_seqs=8, enforce_eager=True"], "anchor_every": 2},
    ],
)
def test_counts_the_launches_that_the_search_makes(search: dict[str, object]) -> None:
    """Anchors, blocks of finalists and the holdout run are launches too, before and while they are made."""
    spec, plan, _ = planned(search=search)
    strategy = make_strategy(spec.search, plan)
    made: list[Outcome] = []
    total = cost(search=search).trials
    while isinstance(step := strategy.propose(made, ()), Proposal):
        assert total == len(made) + remaining(spec, plan, made)
        # All alike, so that none is left out of the finals.
        made.append(
            Outcome(
                config_id=step.config_id,
                replicate=step.replicate,
                status="ok",
                value=100.0,
                holdout=step.holdout,
            )
        )

    assert total == len(made)
    assert 0 == remaining(spec, plan, made)


@pytest.mark.parametrize(
    ("budget_s", "gpu", "least_s", "most_s"),
    [(300, "NVIDIA L4", 290, 301), (2000, "NVIDIA L4", 301, 1999), (60, "NVIDIA H100 80GB HBM3", 50, 61)],
)
def test_search_for_the_rate_takes_its_requests_or_its_budget(
    budget_s: float, gpu: str, least_s: float, most_s: float
) -> None:
    """4,200 requests at the predicted rate, at most the budget: never the moment of a single request."""
    level = {"max_rate_under": {"ttft_p95_ms": 500, "tpot_p95_ms": 100}, "budget_s": budget_s}
    workload = {"kind": "synthetic", "name": "s", "input_tokens": 100, "output_tokens": 50}
    search = {"finalists": 0}
    keys = {"workloads": [{"workload": workload, "levels": [level]}], "deadlines": {"run_s": 3000}, "search": search}
    searched = cost(gpu=gpu, **keys)
    one = [{"workload": workload, "levels": [{"concurrency": 1, "requests": 1}]}]
    held = cost(gpu=gpu, workloads=one, search=search)
    each_s = (searched.duration_s - held.duration_s) / searched.trials

    assert least_s <= each_s <= most_s
