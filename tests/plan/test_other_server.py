"""A server that is not vLLM: its build, its configs in a plan, and what it is started with."""

from typing import Any

import pytest

from archive_factory import sweep_spec
from node_models import LLAMA, serving
from tokenpeak.errors import InventoryError, PlanError
from tokenpeak.plan.baseline import baselines
from tokenpeak.plan.matrix import build_plan
from tokenpeak.plan.other_server import launched_line
from tokenpeak.predict.quantization import gguf_type
from tokenpeak.quality.sweep_quality import choose_reference
from tokenpeak.ranking.candidates import Launch, decided
from tokenpeak.ranking.precision import precision_of
from tokenpeak.records import EngineBuild, Gpu, NodeFacts, Plan, Production
from tokenpeak.spec.engine_build import declared_builds, server_command
from tokenpeak.spec.quality import QualitySpec
from tokenpeak.spec.sweep import SweepSpec

FILE = "/models/llama-3.1-8b-instruct.Q4_K_M.gguf"
GGUF = {"name": "gguf", "engine": "llama", "model": {"name": FILE}, "args": ["--parallel", "8"]}
VLLM = EngineBuild(name="vllm", version="0.32.0", installed="0.32.0")
OTHER = EngineBuild(name="llama", version="llama.cpp")


def node(*builds: EngineBuild, **facts: Any) -> NodeFacts:
    board = Gpu(index=0, name="NVIDIA L4", vram_bytes=24 << 30, compute_capability="8.9")
    return NodeFacts(node="n", source="probed", gpus=(board,), engines=builds, **facts)


def spec(**keys: object) -> SweepSpec:
    fixed = {"name": "fixed", "flags": {"max_model_len": 2048}, "env": {"VLLM_USE_V1": "1"}}
    return SweepSpec.model_validate({**sweep_spec({}).model_dump(mode="json"), "axes": {}, "fixed": fixed, **keys})


def planned(*builds: EngineBuild, **keys: object) -> Plan:
    (plan,) = build_plan(spec(**keys), serving(LLAMA, node(*builds)))
    return plan


def test_it_is_planned_beside_vllm_without_a_prediction() -> None:
    """It has its build's model and words, no flag and no variable of vLLM's, and the plan says what is not known."""
    plan = planned(VLLM, OTHER, axes={"weights": [{"name": "bf16"}, GGUF], "max_num_seqs": [8, 16]})
    own, other = plan.feasible[:2], plan.feasible[2]

    assert [True, True] == [each.prediction is not None for each in own]
    assert (None, "weights=gguf", {"weights": "gguf"}) == (other.prediction, other.config.name, other.config.choices)
    assert ({}, {}, ("--parallel", "8")) == (other.config.flags, other.config.env, other.config.args)
    assert ("llama", "llama.cpp", FILE) == (other.config.engine, other.config.engine_version, other.config.model.name)
    assert "llama.cpp is not vLLM" in other.advice[0]
    assert [("duplicate", "it is the same as 'weights=gguf'")] == [(each.rule, each.reason) for each in plan.dropped]
    assert plan.estimated_trial_s


def test_words_are_part_of_what_a_config_is() -> None:
    """Configs that differ in args are two, and an axis of args stays."""
    slots = [{"name": name, "args": ["--parallel", name]} for name in ("4", "8")]
    plan = planned(VLLM, OTHER, axes={"weights": [GGUF], "slots": slots})

    assert ["weights=gguf, slots=4", "weights=gguf, slots=8"] == [each.config.name for each in plan.feasible]
    assert 2 == len({each.config.config_id for each in plan.feasible})


@pytest.mark.parametrize(
    ("alternative", "said"),
    [
        ({**GGUF, "flags": {"max_num_seqs": 8}}, "'gguf' gives max_num_seqs to llama.cpp"),
        ({"name": "bf16", "args": ["--parallel", "8"]}, "has args, which are of a server that is not vLLM"),
    ],
)
def test_words_of_the_other_kind_are_refused(alternative: dict[str, object], said: str) -> None:
    """Flags that are given to another server, and args that are given to vLLM, are mistakes before any launch."""
    with pytest.raises(PlanError, match=said):
        planned(VLLM, OTHER, axes={"weights": [alternative]})


def test_node_without_that_build() -> None:
    """There the config is dropped, with the builds that there are."""
    plan = planned(VLLM, axes={"weights": [{"name": "bf16"}, GGUF]})

    assert [("engine_build", "weights=gguf")] == [(each.rule, each.config.name) for each in plan.dropped]
    assert "it has vllm (vLLM 0.32.0)" in plan.dropped[0].reason


def test_production_stays_a_baseline_of_vllm() -> None:
    """Where another server is the default build, production's flags go to vLLM's; without one there is no baseline."""
    running = Production(
        manager="systemd", running=True, model=LLAMA.name, arguments=(LLAMA.name, "--max-num-seqs", "32")
    )
    tried = spec(axes={"weights": [GGUF]}, search={"baseline": ["production"]}, model={"name": LLAMA.name})
    (found,), _ = baselines(tried, [node(OTHER, VLLM, production=running)])
    none, (why,) = baselines(tried, [node(OTHER, production=running)])

    assert ("vllm", {"max_model_len": None, "max_num_seqs": 32}) == (found.engine, found.flags)
    assert () == none
    assert "n has no build of vLLM" in why


def test_answers_are_compared_with_those_of_vllm() -> None:
    """Of a plan without baselines the reference is a config of vLLM's; of another server alone there is none."""
    axes = {"weights": [GGUF, {"name": "bf16"}]}
    chosen = choose_reference(planned(VLLM, OTHER, axes=axes), QualitySpec())

    assert chosen is not None
    assert "weights=bf16" == chosen.planned.config.name
    assert choose_reference(planned(VLLM, OTHER, axes={"weights": [GGUF]}), QualitySpec()) is None


def test_precision_of_a_file() -> None:
    """The precision is what the file's name says."""
    other = planned(VLLM, OTHER, axes={"weights": [GGUF]}).feasible[0].config

    assert "Q4_K_M" == precision_of(other).quantization
    assert f"--model {FILE}" in launched_line(other, ["llama-server", "--model", FILE])


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("/m/mistral-7b-instruct-v0.2.Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
        ("x-IQ3_XS.gguf", "IQ3_XS"),
        ("x-BF16.gguf", "BF16"),
        ("x.gguf", "gguf"),
        ("TheBloke/Mistral-7B-Instruct-v0.2-GGUF", "gguf"),
        ("mistralai/Mistral-7B-Instruct-v0.2", None),
    ],
)
def test_type_of_a_gguf_file(model: str, found: str | None) -> None:
    """The type of the weights stands at the end of a file's name."""
    assert found == gguf_type(model)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ({"server": "llama.cpp", "command": ["x", "{model}"]}, r"llama.cpp has no \{port\}"),
        ({"server": "llama.cpp", "command": ["x", "{port}"]}, r"llama.cpp has no \{model\}"),
        ({"server": "llama.cpp", "command": ["x", "{port}", "{modle}"]}, r"has \{modle\}; there are \{host\}"),
        ({"server": "llama.cpp"}, "a build has a command"),
        ({"server": "llama.cpp", "version": "1.0", "command": ["{port}", "{model}"]}, "server: NAME-VERSION"),
        ({"server": "0.32.0", "command": ["{port}", "{model}"]}, r"a\.server"),
        ({"command": ["vllm", "serve", "--port={port}"]}, "say which: server: NAME"),
        ({"version": "llama.cpp", "command": ["x"]}, "is none of vLLM"),
    ],
)
def test_builds_that_are_written_wrongly(build: dict[str, object], said: str) -> None:
    """The error says what the command lacks, or which key is meant."""
    with pytest.raises(InventoryError, match=said):
        declared_builds("n", {"tokenpeak_engines": {"a": build}})


def test_command_with_its_places_filled_in() -> None:
    """Address, model and name stand where the command has their places; other braces stay."""
    command = ["llama-server", "--port={port}", "--host", "{host}", "-m", "{model}", "-a", "{served_model}", '{"a": 1}']
    filled = server_command(command, host="127.0.0.1", port=8099, model=FILE, name="llama")

    assert ["llama-server", "--port=8099", "--host", "127.0.0.1", "-m", FILE, "-a", "llama", '{"a": 1}'] == filled


def test_file_is_quantized_without_a_flag() -> None:
    """Where nothing runs now, a file's answers are as little compared as those of a quantizing flag."""
    f16 = {**GGUF, "name": "f16", "model": {"name": FILE.replace("Q4_K_M", "F16")}}
    plan = planned(VLLM, OTHER, axes={"weights": [{"name": "bf16"}, GGUF, f16]})
    launches = [Launch(config_id=each.config.config_id, node="n", value=1.0, slo_met=None) for each in plan.feasible]
    alone = spec(search={"baseline": []})
    found = decided(alone, launches, plan=plan, quality={}, engine_version="0.32.0")

    assert ["same", "not_compared", "not_compared"] == [each.answers for each in found.all]
