"""Which variables a config may set: asked while planning, so that a node never has to refuse."""

from typing import Any

import pytest

from archive_factory import node_facts, sweep_spec
from node_models import serving
from tokenpeak.errors import PlanError
from tokenpeak.node.engine import builds
from tokenpeak.plan.matrix import build_plan, configs
from tokenpeak.records import ModelName
from tokenpeak.spec.sweep import SweepSpec, read_spec, sweep_names
from tokenpeak.sweep.downtime_budget import longest_trial_s, require_deadlines
from tokenpeak.vllm.flags import flag_table

MODEL = ModelName(name="meta-llama/Llama-3.1-8B-Instruct", served_name="llama-8b")


def spec_with_env(env: dict[str, str], *, force: bool = False) -> SweepSpec:
    """A sweep of one config beside another that sets these variables."""
    raw = sweep_spec({"max_num_seqs": [8]}).model_dump(mode="json")
    return SweepSpec.model_validate({**raw, "extra_configs": [{"name": "mine", "env": env, "force": force}]})


def dropped(spec: SweepSpec, **facts: Any) -> dict[str, tuple[str, str]]:
    """The rule and reason for each dropped config."""
    node = node_facts("node-1", "NVIDIA L4").model_copy(update=facts)
    (plan,) = build_plan(spec, serving(MODEL, node))
    return {entry.config.name: (entry.rule, entry.reason) for entry in plan.dropped}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("name", "advised"),
    [
        ("LD_PRELOAD", "tokenpeak_engine_env"),
        ("PYTHONPATH", "tokenpeak_engine_env"),
        ("HF_TOKEN", "tokenpeak_engine_env_allowed"),
        ("VLLM_PLUGINS", "tokenpeak_engine_env_allowed"),
    ],
)
def test_config_with_a_variable_that_no_node_takes_is_dropped(name: str, advised: str, force: bool) -> None:
    """The reason names the variable and the inventory's key; the others of the matrix stay. Nothing forces it."""
    rule, reason = dropped(spec_with_env({name: "x"}, force=force))["mine"]

    assert "environment" == rule
    assert reason.startswith(f"{name} ")
    assert advised in reason


def test_value_of_several_lines_is_dropped() -> None:
    """What could become another variable on the node is not sent there."""
    assert "environment" == dropped(spec_with_env({"NCCL_DEBUG": "1\nLD_PRELOAD=x"}))["mine"][0]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("VLLM_ATTENTION_BACKEND", {}),
        ("CUDA_VISIBLE_DEVICES", {}),
        ("TOKENPEAK_SIM_NOISE", {"simulated": True}),
        ("MY_OWN", {"engine_env_allowed": ("MY_*",)}),
    ],
)
def test_variable_that_is_allowed(name: str, facts: dict[str, Any]) -> None:
    """By default what tunes the engine and its devices, and whatever the inventory names."""
    assert "mine" not in dropped(spec_with_env({name: "x"}), **facts)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"])
def test_boards_that_the_inventory_chose_stay_chosen(name: str) -> None:
    """Where boards are chosen, no config chooses others, not by a pattern either; the reason names what does."""
    for declared in (None, ("CUDA_*", "HIP_*"), (name,)):
        allowed = builds.allowed_names(declared, simulated=True, chosen=True)
        rule, reason = dropped(spec_with_env({name: "0"}), engine_env_allowed=allowed)["mine"]
        assert "environment" == rule
        assert reason.startswith(f"{name} ") and "tokenpeak_gpus of the inventory does" in reason


def test_no_pattern_allows_vllm_names_that_load_code() -> None:
    """Of all variables that any release reads, those that name files, folders, plugins or servers stand apart."""
    every = sorted(name for name in flag_table().variables if name.startswith("VLLM_"))
    refused = {name for name in every if builds.why_not_set(name, builds.DEFAULT_VARIABLES)}

    assert {
        "VLLM_CUDART_SO_PATH",
        "VLLM_NCCL_SO_PATH",
        "VLLM_RUST_FRONTEND_PATH",
        "VLLM_LOGGING_CONFIG_PATH",
        "VLLM_CACHE_ROOT",
        "VLLM_CONFIG_ROOT",
        "VLLM_PLUGINS",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_API_KEY",
    } <= refused
    assert len(refused) < len(every) / 10


@pytest.mark.parametrize("entry", ["*", "LD_*", "LD_PRELOAD", "PYTHON*", "PATH", "a b", "A=1", "", "*_PATH"])
def test_lists_that_no_inventory_may_give(entry: str) -> None:
    """Neither everything nor the loader's own names."""
    assert builds.wrong_variables([entry])


@pytest.mark.parametrize("name", sweep_names())
def test_shipped_sweep_is_one_that_nodes_take(name: str) -> None:
    """Its variables, its lease and its deadlines are within what a node allows by default."""
    spec = read_spec(name)
    variables = {variable for config in configs(spec, MODEL) for variable in config.env}

    assert [] == [variable for variable in variables if builds.why_not_set(variable, builds.DEFAULT_VARIABLES)]
    require_deadlines(spec, "node", {})


@pytest.mark.parametrize(
    ("deadlines", "limits", "said"),
    [
        ({"lease_s": 700}, {}, "lease_s is 700 s and tokenpeak_lease_max_s of the inventory 600"),
        ({"run_s": 600}, {"trial_deadline_max_s": 1000}, "tokenpeak_trial_deadline_max_s of the inventory is 1000"),
    ],
)
def test_deadlines_beyond_what_a_node_allows(deadlines: dict[str, float], limits: dict[str, float], said: str) -> None:
    """Said before any node is touched, with the key that allows more."""
    raw = sweep_spec({"max_num_seqs": [8]}).model_dump(mode="json")
    spec = SweepSpec.model_validate({**raw, "deadlines": {**raw["deadlines"], **deadlines}})

    with pytest.raises(PlanError, match=said):
        require_deadlines(spec, "gpu-1", {"limits": limits})
    assert longest_trial_s(spec) > 0
