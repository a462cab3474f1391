"""What the user has becomes configs of the sweep."""

from pathlib import Path
from typing import Any

import pytest

from node_models import LLAMA, serving
from tokenpeak.plan.baseline import baselines, parse_arguments
from tokenpeak.plan.matrix import configs
from tokenpeak.records import EngineBuild, NodeFacts, Production
from tokenpeak.spec.sweep import SweepSpec, parse_spec

ARGUMENTS = (
    *("meta-llama/Llama-3.1-8B-Instruct", "--host", "0.0.0.0", "--port=8000", "--max-model-len", "4096"),
    *(
        "-tp",
        "2",
        "--no-enable-prefix-caching",
        "--served-model-name",
        "chat",
        "llama",
        "--gpu-memory-utilization=0.85",
    ),
)


def spec(**keys: Any) -> SweepSpec:
    given = {
        "axes": {"max_num_seqs": [8, 64]},
        "fixed": {"name": "fixed", "flags": {"dtype": "bfloat16"}},
        "workloads": [
            {
                "workload": {"kind": "fixed", "name": "hello", "prompt": "Hello", "output_tokens": 8},
                "levels": [{"concurrency": 4, "requests": 8}],
            }
        ],
    }
    return parse_spec({**given, **keys}, Path("mine.yml"))


def node(*arguments: str, model: str = "chat") -> NodeFacts:
    production = Production(manager="systemd", running=True, model=model, arguments=arguments)
    return NodeFacts(node="n", source="probed", engine_version="0.32.0", production=production)


def test_command_line_as_flags() -> None:
    """Names with dashes, short names, values after = and negated switches are flags; addresses and names are not."""
    model, flags = parse_arguments(ARGUMENTS, "0.32.0")

    assert "meta-llama/Llama-3.1-8B-Instruct" == model
    assert {
        "max_model_len": 4096,
        "tensor_parallel_size": 2,
        "enable_prefix_caching": False,
        "gpu_memory_utilization": 0.85,
    } == flags


def test_defaults_and_production_are_configs() -> None:
    """Defaults are the fixed part alone; production has its own flags and not the fixed part's."""
    extra, notes = baselines(spec(), serving(LLAMA, node(*ARGUMENTS)))
    found = {config.name: config.flags for config in configs(spec().model_copy(update={"extra_configs": extra}), LLAMA)}

    assert () == notes
    assert {"dtype": "bfloat16"} == found["defaults"]
    assert "dtype" not in found["production"]
    assert 4096 == found["production"]["max_model_len"]


def test_production_of_another_model_is_no_baseline() -> None:
    """Its flags say nothing of the model that is tuned; the note says why it is left out."""
    added, notes = baselines(spec(), serving(LLAMA, node("other/model", model="other/model")))

    assert ["defaults"] == [extra.name for extra in added]
    assert "serves other/model" in notes[0]


def test_flags_that_this_engine_lacks_are_no_baseline() -> None:
    """A production of another release whose flags are gone is left out, and the note names the flag."""
    old = node(*ARGUMENTS, "--num-scheduler-steps", "8")
    _, notes = baselines(spec(), serving(LLAMA, old))

    assert "num_scheduler_steps" in notes[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-ep", "-dp", "4"), {"enable_expert_parallel": True, "data_parallel_size": 4}),
        (("-asc", "4", "-cc.mode=3"), {"api_server_count": 4, "compilation_config": {"mode": 3}}),
        (("-O3",), {"optimization_level": "3"}),
        (
            ("--compilation-config.pass_config.fuse_norm_quant", "true", "-cc.mode", "3"),
            {"compilation_config": {"pass_config": {"fuse_norm_quant": True}, "mode": 3}},
        ),
        (("-tp=2", "-tp=4"), {"tensor_parallel_size": 4}),
    ],
)
def test_short_and_dotted_flags(words: tuple[str, ...], expected: dict[str, Any]) -> None:
    """As the engine's own parser takes them."""
    assert ("acme/m", expected) == parse_arguments(("acme/m", *words), "0.24.0")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--gpu-memory-utilization", "${UTIL}"), "its command has ${UTIL}"),
        (("--max-model-len", "$LENGTH"), "its command has $LENGTH"),
        (("--max-model-len=$(nproc)",), "its command has $(nproc)"),
        (("--config", "/etc/vllm/serve.yaml"), "stand in /etc/vllm/serve.yaml"),
    ],
)
def test_settings_that_are_not_in_the_command_are_no_baseline(words: tuple[str, ...], reason: str) -> None:
    """A baseline without them would be the engine's defaults under production's name."""
    added, notes = baselines(spec(), serving(LLAMA, node(LLAMA.name, *words, model=LLAMA.name)))

    assert ["defaults"] == [extra.name for extra in added]
    assert reason in notes[0]


def test_defaults_are_vllms_where_another_server_comes_first() -> None:
    """With llama.cpp as the node's first build, what all is compared with is still vLLM with its defaults."""
    builds = (EngineBuild(name="llama", version="llama.cpp"), EngineBuild(name="vllm", version="0.32.0"))
    found = node(LLAMA.name, model=LLAMA.name).model_copy(update={"engines": builds})
    [defaults, *_], _ = baselines(spec(), serving(LLAMA, found))

    assert "vllm" == defaults.engine
