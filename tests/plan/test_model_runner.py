"""The second model runner and CUDA graphs, held against config/vllm.py of each release."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tokenpeak.vllm.engine_core import RunnerFacts, capture_sizes, reserves_graphs, second_runner

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
NGRAM = {"speculative_config": '{"method": "ngram", "num_speculative_tokens": 4}'}


@pytest.mark.parametrize(
    ("asked", "second", "reserved"),
    [
        (LLAMA, "--2222", "rr--rr"),
        (replace(LLAMA, model_type="qwen3"), "-22222", "r---rr"),
        (replace(LLAMA, model_type="qwen3", quantized=True), "--2222", "rr--rr"),
        (replace(LLAMA, model_type="qwen2"), "---222", "rrr-rr"),
        (replace(LLAMA, model_type="deepseek_v3", experts=True), "----22", "rrrrrr"),
        (replace(LLAMA, flags=NGRAM), "------", "rrrrrr"),
        (replace(LLAMA, env={"VLLM_USE_V2_MODEL_RUNNER": "0"}), "------", "rrrrrr"),
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
        ((0, 32, 0), "12.0", 1024, {}, 51, 512),
        ((0, 24, 0), "10.0", 1024, {}, 51, 512),
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
