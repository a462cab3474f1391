"""What stays held while the engine profiles, by release, device and method."""

from typing import Any

import public_models as shapes
import pytest

from node_models import known_board
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.model import facts_from_config
from tokenpeak.predict.profile_run import (
    expert_workspace_bytes,
    fuses_all_reduce,
    image_bytes,
    keeps_expert_workspace,
    non_torch_bytes,
)

RELEASES = ("0.10.2", "0.11.0", "0.11.2", "0.13.0", "0.14.1", "0.16.0", "0.18.0")


def deployed(shape: shapes.Shape, gpu: str = "H200", release: str = "0.18.0", **options: Any) -> Deployment:
    """A model on a board with a release."""
    model = facts_from_config(dict(shape), "asked")
    options = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192, **options}
    return Deployment(model=model, gpu=known_board(gpu), engine_version=release, **options)


@pytest.mark.parametrize(
    ("shape", "gpu", "options", "kept"),
    [
        (shapes.QWEN3_VL_30B, "H200", {}, "----kkk"),
        (shapes.DEEPSEEK_V3_2, "H200", {"tensor_parallel": 8}, "--k-k-k"),
        (shapes.DEEPSEEK_V3_2, "B200", {"tensor_parallel": 8}, "-------"),
        (shapes.MINIMAX_M2_5, "H200", {"tensor_parallel": 8, "expert_parallel": True}, "-kk-k--"),
        (shapes.MINIMAX_M2_5, "H200", {"tensor_parallel": 4}, "--kkk-k"),
        (shapes.QWEN3_235B_FP8, "H200", {"tensor_parallel": 4, "expert_parallel": True}, "-kk-kkk"),
        (shapes.NEMOTRON_3_NANO_FP8, "H200", {}, "--k-k--"),
        (shapes.KIMI_K2_5, "H200", {"tensor_parallel": 8}, "-------"),
        (shapes.DEEPSEEK_V3_2, "MI300X", {"tensor_parallel": 8}, "-------"),
    ],
)
def test_which_kernel_keeps_its_workspace(shape: shapes.Shape, gpu: str, options: dict[str, Any], kept: str) -> None:
    """As the engine chooses among Triton, DeepGEMM, FlashInfer and Marlin."""
    found = [keeps_expert_workspace(deployed(shape, gpu, release, **options)) for release in RELEASES]

    assert kept == "".join("k" if each else "-" for each in found)


def test_a_workspace_has_two_rows_for_each_expert_of_a_token() -> None:
    """8,192 tokens × 8 experts × 2,048 values × 2 bytes, twice."""
    assert GIB / 2 == expert_workspace_bytes(deployed(shapes.QWEN3_VL_30B))


@pytest.mark.parametrize(
    ("options", "is_fused"),
    [
        ({}, True),
        ({"eager": True}, False),
        ({"data_parallel": 2}, False),
        ({"tensor_parallel": 1}, False),
        ({"release": "0.16.0"}, False),
        ({"gpu": "L40S"}, False),
    ],
)
def test_when_an_all_reduce_is_fused(options: dict[str, Any], is_fused: bool) -> None:
    """On Hopper and Blackwell since 0.17, in a group alone, when compiled."""
    options = {"tensor_parallel": 4, **options}
    assert is_fused == fuses_all_reduce(deployed(shapes.LLAMA_70B, **options))


def test_a_group_takes_more_before_0_11() -> None:
    """Until then the engine looked at the memory before it started NCCL."""
    found = [
        round(non_torch_bytes(deployed(shapes.LLAMA_70B, release=release, tensor_parallel=gpus)) / GIB, 2)
        for release in ("0.10.2", "0.11.0", "0.18.0")
        for gpus in (1, 2, 4)
    ]

    assert [0.13, 1.18, 2.13, 0.13, 0.55, 0.55, 0.32, 2.24, 2.24] == found


def test_an_image_is_held_unless_the_towers_are_left_out() -> None:
    """16,384 embeddings of 2,048 values at four levels; none with `language_model_only`."""
    assert GIB / 4 == image_bytes(deployed(shapes.QWEN3_VL_30B))
    assert image_bytes(deployed(shapes.QWEN3_VL_30B, text_only=True)) == 0.0
