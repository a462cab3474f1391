from pathlib import Path

import pytest

from node_models import LLAMA, named, serving
from tokenpeak.errors import PlanError
from tokenpeak.plan.matrix import build_plan, configs
from tokenpeak.records import Gpu, NodeFacts
from tokenpeak.spec.sweep import SweepSpec, parse_spec

WORKLOADS = [
    {
        "workload": {"kind": "synthetic", "name": "short", "input_tokens": 100, "output_tokens": 50},
        "levels": [{"concurrency": 16, "requests": 64}],
    }
]


def spec(**keys: object) -> SweepSpec:
    return parse_spec({"workloads": WORKLOADS, **keys}, Path("test.yml"))


def node(gpu: str = "NVIDIA A100-SXM4-80GB", count: int = 1, name: str = "one") -> NodeFacts:
    gpus = tuple(Gpu(index=index, name=gpu) for index in range(count))
    return NodeFacts(node=name, source="declared", gpus=gpus, engine_version="0.32.0")


def test_takes_the_product_of_the_axes_in_order() -> None:
    """Axes multiply, extra configs follow, and the same spec gives the same configs and ids."""
    asked = spec(
        axes={"max_num_seqs": [8, 16], "enforce_eager": [True, False]},
        extra_configs=[{"name": "one-more", "flags": {"max_num_seqs": 4}}],
    )
    first, again = configs(asked, LLAMA), configs(asked, LLAMA)

    assert [
        "max_num_seqs=8, enforce_eager=true",
        "max_num_seqs=8, enforce_eager=false",
        "max_num_seqs=16, enforce_eager=true",
        "max_num_seqs=16, enforce_eager=false",
        "one-more",
    ] == [config.name for config in first]
    assert first == again


def test_names_a_config_by_what_it_resolves_to() -> None:
    """The id hashes the resolved result: how flags are spelt and which axis sets them does not matter."""
    by_axis = configs(spec(axes={"max-num-seqs": [8]}), LLAMA)[0]
    by_fixed = configs(spec(fixed={"name": "fixed", "flags": {"max_num_seqs": 8}}), LLAMA)[0]

    assert by_axis.config_id == by_fixed.config_id
    assert 12 == len(by_axis.config_id)


def test_drops_what_does_not_fit_with_the_sum_that_says_so() -> None:
    """A 70B model in 16 bits on one L4 is dropped; its reason adds up the gigabytes."""
    (plan,) = build_plan(spec(), serving(named("meta-llama/Llama-3.3-70B-Instruct"), node("NVIDIA L4")))

    assert () == plan.feasible
    assert "GiB" in plan.dropped[0].reason


def test_no_config_is_forced_onto_several_nodes() -> None:
    """An engine that would wait for other nodes is dropped in any case: production would be down meanwhile."""
    asked = spec(extra_configs=[{"name": "wide", "flags": {"nnodes": 2}, "force": True}])
    (plan,) = build_plan(asked, serving(LLAMA, node()))

    assert ("wide", "one_node") in [(dropped.config.name, dropped.rule) for dropped in plan.dropped]


@pytest.mark.parametrize(
    ("gpu", "model"),
    [("NVIDIA Unheard-Of 9000", "meta-llama/Llama-3.1-8B-Instruct"), ("NVIDIA L4", "nobody/Nothing-9B")],
)
def test_plans_the_unknown_without_prediction(gpu: str, model: str) -> None:
    """An unknown device or model is swept all the same."""
    asked = spec(axes={"max_num_seqs": [32, 64]})
    (plan,) = build_plan(asked, serving(named(model), node(gpu)))

    assert [None, None] == [planned.prediction for planned in plan.feasible]
    assert 2 == len({planned.config_class for planned in plan.feasible})


def test_merges_configs_that_this_load_cannot_distinguish() -> None:
    """Sequences beyond the requests in flight, and memory that the load never fills, make no difference."""
    asked = spec(axes={"max_num_seqs": [8, 64, 128], "gpu_memory_utilization": [0.8, 0.9]})
    (plan,) = build_plan(asked, serving(LLAMA, node()))
    seats = [planned.config.flags["max_num_seqs"] for planned in plan.feasible]
    classes = dict.fromkeys(planned.config_class for planned in plan.feasible)

    assert [8, 8, 64, 64, 128, 128] == seats
    assert 2 == len(classes)


def test_a_node_s_own_help_decides_its_flags() -> None:
    """A flag that the table knows but the engine on the node does not list is refused before anything is touched."""
    own = node().model_copy(update={"engine_help": ("  --max-num-seqs MAX_NUM_SEQS", "  --brand-new BRAND_NEW")})

    (plan,) = build_plan(spec(axes={"brand_new": [1, 2]}), serving(LLAMA, own))
    assert 2 == len(plan.feasible)
    with pytest.raises(PlanError, match="the help of the engine on the node does not list it"):
        build_plan(spec(axes={"enable_prefix_caching": [True, False]}), serving(LLAMA, own))
