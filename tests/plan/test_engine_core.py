"""The choice between V0 and V1, the second model runner and CUDA graphs, held against each release's own sources."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tokenpeak.predict.memory_plan import plan_memory
from tokenpeak.predict.model import model_facts
from tokenpeak.records import Config, Gpu, ModelName, NodeFacts
from tokenpeak.vllm.engine_core import (
    CoreFacts,
    RunnerFacts,
    capture_sizes,
    reserves_graphs,
    runs_v1,
    schedules_ahead,
    second_runner,
)

NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'
EAGLE = '{"method": "eagle", "model": "e", "num_speculative_tokens": 2}'
DRAFT = '{"model": "small", "num_speculative_tokens": 2}'
FP8 = {"kv_cache_dtype": "fp8"}
ASKED = {"VLLM_USE_V1": "1"}
HOPPER, AMPERE, VOLTA = (
    CoreFacts(release=(0, 8, 5), flags={}, env={}, vendor="nvidia", capability=capability)
    for capability in (90, 80, 70)
)
MI300X, CPU = (replace(HOPPER, vendor=vendor, capability=None) for vendor in ("amd", "cpu"))


@pytest.mark.parametrize(
    ("on", "flags", "env", "expected"),
    [
        # V1 in 0.8.5, 0.9.2, 0.10.2.
        (HOPPER, {}, {}, (True, True, True)),
        (HOPPER, {}, {"VLLM_USE_V1": "0"}, (False, False, False)),
        (VOLTA, {}, {}, (False, False, True)),
        (MI300X, {}, {}, (False, True, True)),
        (CPU, {}, {}, (False, True, True)),
        (replace(CPU, windowed=True), {}, {}, (False, False, False)),
        (HOPPER, FP8, {}, (True, True, True)),
        (AMPERE, FP8, {}, (False, False, False)),
        (AMPERE, FP8, {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, (False, False, True)),
        (replace(AMPERE, mla=True), FP8, {}, (False, False, True)),
        (HOPPER, {"speculative_config": NGRAM}, {}, (False, True, True)),
        (HOPPER, {"speculative_config": NGRAM}, ASKED, (True, True, True)),
        (HOPPER, {"speculative_config": DRAFT}, {}, (False, False, True)),
        (HOPPER, {"pipeline_parallel_size": 2}, {}, (False, True, True)),
        (HOPPER, {"num_scheduler_steps": 8}, {}, (False, False, True)),
        (HOPPER, {}, {"VLLM_ATTENTION_BACKEND": "XFORMERS"}, (False, False, False)),
    ],
)
def test_falls_back_to_v0_for_what_v1_lacks(
    on: CoreFacts, flags: dict[str, Any], env: dict[str, str], *, expected: tuple[bool, ...]
) -> None:
    """Between 0.8 and 0.10 the feature decides as much as the device; before and after it does not."""
    releases = ((0, 7, 3), (0, 8, 5), (0, 9, 2), (0, 10, 2), (0, 11, 2))
    found = [runs_v1(replace(on, release=release, flags=flags, env=env)) for release in releases]

    assert [env == ASKED, *expected, True] == found


@pytest.mark.parametrize(
    ("gpu", "version", "flags", "expected"),
    [
        # V1, chunked prefill, prefix caching, batched tokens, sequences.
        ("NVIDIA H200", "0.8.5", {}, (True, True, True, 8192, 1024)),
        ("NVIDIA H200", "0.8.5", {"speculative_config": NGRAM}, (False, False, False, 4096, 256)),
        ("AMD Instinct MI300X", "0.9.2", {}, (True, True, True, 8192, 1024)),
        ("NVIDIA A100-SXM4-80GB", "0.8.5", FP8, (False, False, False, 4096, 256)),
        ("NVIDIA A100-SXM4-80GB", "0.9.2", {}, (True, True, True, 2048, 256)),
        # V0 chunks contexts beyond 32,768, but not while it speculates.
        ("NVIDIA A100-SXM4-80GB", "0.8.5", {**FP8, "max_model_len": 65536}, (False, True, False, 2048, 256)),
        (
            "NVIDIA A100-SXM4-80GB",
            "0.8.5",
            {"speculative_config": NGRAM, "max_model_len": 65536},
            (False, False, False, 65536, 256),
        ),
        # V1 up to 0.10 chunks whatever is asked; V0 does not, and later releases do as asked.
        ("NVIDIA H200", "0.10.2", {"enable_chunked_prefill": False}, (True, True, True, 8192, 1024)),
        ("NVIDIA H200", "0.32.0", {"enable_chunked_prefill": False}, (True, False, True, 8192, 1024)),
        ("Tesla V100-PCIE-32GB", "0.8.5", {"enable_chunked_prefill": True}, (False, True, False, 2048, 256)),
    ],
)
def test_defaults_follow_from_the_core(
    gpu: str, version: str, flags: dict[str, Any], *, expected: tuple[bool, bool, bool, int, int]
) -> None:
    """Chunked prefill, prefix caching and the batch are the core's: V0 does neither of itself up to 32,768 tokens."""
    config = Config(
        config_id="0" * 12,
        name="c",
        model=ModelName(name="m", served_name="m"),
        flags={"max_model_len": 4096, **flags},
        env={},
    )
    node = NodeFacts(node="n", source="declared", gpus=(Gpu(index=0, name=gpu),))
    memory = plan_memory(config, node, model_facts("meta-llama/Llama-3.1-8B-Instruct"), version)
    assert memory is not None
    deployment = memory.deployment

    assert expected == (
        deployment.v1,
        memory.chunked_prefill,
        memory.prefix_caching,
        deployment.max_num_batched_tokens,
        deployment.max_num_seqs,
    )


@pytest.mark.parametrize(
    ("on", "flags", "expected"),
    [
        # Whether the next step is scheduled ahead in 0.13.0, 0.14.1, 0.24.0 and 0.32.0.
        (HOPPER, {}, (False, True, True, True)),
        (CPU, {}, (False, False, False, False)),
        (HOPPER, {"async_scheduling": False}, (False, False, False, False)),
        (HOPPER, {"async_scheduling": True}, (True, True, True, True)),
        (HOPPER, {"pipeline_parallel_size": 2}, (False, False, True, True)),
        (HOPPER, {"speculative_config": NGRAM}, (False, False, False, False)),
        (HOPPER, {"speculative_config": EAGLE}, (False, True, True, True)),
    ],
)
def test_scheduling_ahead_by_release(on: CoreFacts, flags: dict[str, Any], expected: tuple[bool, ...]) -> None:
    """The engine schedules ahead by default since 0.14, but not where it cannot."""
    releases = ((0, 13, 0), (0, 14, 1), (0, 24, 0), (0, 32, 0))
    found = tuple(schedules_ahead(replace(on, release=release, flags=flags), v1=True) for release in releases)

    assert expected == found
    assert not schedules_ahead(replace(on, release=(0, 10, 2), flags={"async_scheduling": True}), v1=False)


LLAMA = RunnerFacts(
    release=(0, 32, 0),
    flags={},
    env={},
    vendor="nvidia",
    compute_capability="9.0",
    model_type="llama",
    experts=False,
    quantized=False,
)
RELEASES = ((0, 21, 0), (0, 22, 1), (0, 24, 0), (0, 28, 0), (0, 30, 0), (0, 32, 0))
SPECULATING = {"speculative_config": '{"method": "ngram", "num_speculative_tokens": 4}'}


@pytest.mark.parametrize(
    ("asked", "second", "reserved"),
    [
        (LLAMA, "--2222", "rr--rr"),
        (replace(LLAMA, model_type="qwen3", quantized=True), "--2222", "rr--rr"),
        (replace(LLAMA, model_type="qwen2"), "---222", "rrr-rr"),
        (replace(LLAMA, model_type="deepseek_v3", experts=True), "----22", "rrrrrr"),
        (replace(LLAMA, flags=SPECULATING), "------", "rrrrrr"),
        (replace(LLAMA, model_type="qwen2", env={"VLLM_USE_V2_MODEL_RUNNER": "1"}), "-22222", "r---rr"),
        (replace(LLAMA, vendor="amd", env={"VLLM_USE_V2_MODEL_RUNNER": "0"}), "------", "---rrr"),
    ],
)
def test_which_runner_sets_graphs_aside(asked: RunnerFacts, second: str, reserved: str) -> None:
    """The second runner came model by model, and measures its graphs since 0.30."""
    found = [replace(asked, release=release) for release in RELEASES]

    assert second == "".join("2" if second_runner(one) else "-" for one in found)
    assert reserved == "".join("r" if reserves_graphs(one) else "-" for one in found)


@pytest.mark.parametrize(
    ("release", "capability", "seqs", "flags", "count", "largest"),
    [
        ((0, 10, 2), "9.0", 1024, {}, 67, 512),
        ((0, 11, 2), "9.0", 1024, {}, 51, 512),
        ((0, 32, 0), "9.0", 256, {}, 51, 512),
        ((0, 32, 0), "9.0", 1, {}, 2, 2),
        ((0, 32, 0), "10.0", 1024, {}, 83, 1024),
        ((0, 32, 0), "9.0", 256, {"cudagraph_capture_sizes": [1, 8, 8, 64, 100000]}, 3, 64),
        ((0, 32, 0), "9.0", 256, {"compilation_config": json.dumps({"cudagraph_capture_sizes": [4, 2]})}, 2, 4),
        ((0, 32, 0), "9.0", 256, {"max_cudagraph_capture_size": 16}, 5, 16),
        ((0, 10, 2), "9.0", 256, {"cuda_graph_sizes": [16]}, 5, 16),
    ],
)
def test_sizes_of_graphs(
    release: tuple[int, int, int], capability: str, seqs: int, flags: dict[str, Any], count: int, largest: int
) -> None:
    """By 8 to 256 and by 16 above since 0.11, to 1,024 on Blackwell of data centres since 0.28, or as asked."""
    asked = replace(LLAMA, release=release, compute_capability=capability, flags=flags)
    sizes = capture_sizes(asked, max_num_seqs=seqs, max_num_batched_tokens=8192)

    assert (count, largest) == (len(sizes), sizes[-1])
