"""Weights and KV cache of models of every kind of layer and quantization, from a config.json alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from node_models import known_board
from tokenpeak.predict.deployment import version_tuple
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.memory_plan import MemoryPlan, memory_on
from tokenpeak.predict.model import facts_from_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def planned(config: dict[str, Any], gpu: str, release: str = "0.24.0", **flags: Any) -> MemoryPlan:
    """The memory plan of a config.json on a board."""
    plan = memory_on(known_board(gpu), facts_from_config(config, "asked"), flags, {}, release, config="asked")
    assert plan is not None, "its widths are known"
    return plan


def weights_gib(plan: MemoryPlan) -> float:
    """Weights of one GPU."""
    return plan.deployment.weight_bytes_per_gpu / GIB


def quantized(**config: Any) -> dict[str, Any]:
    """The dense model with a quantization_config."""
    return {**LLAMA, "quantization_config": config}


def group(targets: list[str], **weights: Any) -> dict[str, Any]:
    """A group of compressed-tensors."""
    return {"targets": targets, "weights": weights}


ATTENTION_KEPT = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(40) for part in "qkvo"]


@pytest.mark.parametrize(
    ("config", "gib"),
    [
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, 20.35),
        ({"quant_method": "auto_round", "bits": 4, "group_size": 128, "sym": True}, 20.35),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head", *ATTENTION_KEPT]}, 41.41),
        ({"quant_method": "fp8", "ignored_layers": ["re:.*self_attn.*"]}, 41.41),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "exclude_modules": ["lm_head", "model.layers.*.self_attn"],
            },
            41.41,
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["*self_attn*"]}, 41.41),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "config_groups": {"group_0": group(["Linear"], num_bits=4, type="float", group_size=16)},
            },
            21.84,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {
                    "group_0": group(["re:.*self_attn.*"], num_bits=8, type="float", symmetric=True),
                    "group_1": group(["re:.*mlp.*"], num_bits=4, type="int", group_size=128, symmetric=True),
                },
            },
            23.08,
        ),
        (
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 128,
                "sym": True,
                "dynamic": {"-:.*self_attn.*": {}},
            },
            28.7,
        ),
    ],
)
def test_each_module_has_its_own_width(config: dict[str, Any], gib: float) -> None:
    """Kept modules stay at 16 bits, and a group has the width of its weights: 6.04 of 36.3 billion are attention."""
    plan = planned(quantized(**config), "A100 80GB", max_model_len=4096)

    assert gib == pytest.approx(weights_gib(plan), rel=0.005)


def test_a_flag_beside_a_quantized_checkpoint_names_what_it_is() -> None:
    """`--quantization modelopt` on an NVFP4 checkpoint is no FP8."""
    config = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "config_groups": {"group_0": group(["Linear"], num_bits=4, type="float", group_size=16)},
    }
    plan = planned(quantized(**config), "RTX 5090", max_model_len=4096, quantization="modelopt")

    assert 21.84 == pytest.approx(weights_gib(plan), rel=0.005)
    assert plan.fits


def test_an_unknown_method_or_family_has_no_prediction() -> None:
    """Neither is taken for 16 bits."""
    unknown = facts_from_config(quantized(quant_method="ternary-of-tomorrow"), "asked")
    exotic = facts_from_config({**LLAMA, "model_type": "layers_of_tomorrow"}, "asked")
    board = known_board("A100 80GB")

    assert memory_on(board, unknown, {}, {}, "0.24.0", config="asked") is None
    assert memory_on(board, exotic, {}, {}, "0.24.0", config="asked") is None


LINEAR = {
    "model_type": "qwen3_5_text",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 48,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "full_attention_interval": 4,
    "vocab_size": 200000,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
}
MAMBA = {
    "model_type": "nemotron_h",
    "hidden_size": 2048,
    "intermediate_size": 1024,
    "moe_intermediate_size": 1024,
    "moe_shared_expert_intermediate_size": 2048,
    "n_routed_experts": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 17,
    "hybrid_override_pattern": "MEM*EMEM*EMEM*EME",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "vocab_size": 131072,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def test_layers_with_a_state_have_no_keys_and_values() -> None:
    """One layer of four of a linear hybrid, and those with a star of a Mamba hybrid."""
    linear = planned(LINEAR, "RTX 4090", tensor_parallel_size=2, kv_cache_dtype="fp8", max_num_seqs=2)
    mamba = planned(MAMBA, "L4", max_model_len=8192)

    assert 12 * 2 * 256 * 2 == linear.deployment.kv_bytes_per_token_per_gpu
    assert 3 * 2 * 128 * 2 * 2 == mamba.deployment.kv_bytes_per_token_per_gpu
    assert 5.1 == pytest.approx(weights_gib(mamba), rel=0.005)
    assert mamba.fits


def test_what_a_family_leaves_out_is_its_default() -> None:
    """Gemma 3 says neither its vocabulary nor which layers have a window; its tower is in memory, too."""
    config = {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
    }
    plan = planned(config, "H100", max_model_len=4096)
    kept = {each.mixer: each.layers for each in plan.deployment.model.kept}

    assert 51.8 == pytest.approx(weights_gib(plan), rel=0.02)
    assert {"full": 10, "window": 52} == kept


def test_a_tower_is_counted() -> None:
    """Qwen2.5-VL's tower takes 1.26 GiB beside 14.19 of the decoder."""
    config = {
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
    }
    plan = planned(config, "L4", max_model_len=4096)

    assert 15.45 == pytest.approx(weights_gib(plan), rel=0.005)


@pytest.mark.parametrize(("gpus", "gib"), [(2, 34.38), (4, 17.22), (8, 8.66)])
def test_experts_of_mxfp4_are_padded_to_tiles(gpus: int, gib: float) -> None:
    """gpt-oss-120b as logs of 0.22.1 on H200s have it: experts alone are narrow, and take whole tiles."""
    plan = planned({"model_type": "gpt_oss", **GPT_OSS}, "H200", "0.22.1", tensor_parallel_size=gpus)

    assert gib == pytest.approx(weights_gib(plan), rel=0.005)


GPT_OSS = {
    "num_hidden_layers": 36,
    "num_local_experts": 128,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
}


@pytest.mark.parametrize(
    ("gpus", "kv_gib", "tokens"), [(2, 88.77, 2560976), (4, 106.27, 6131009), (8, 114.85, 13253265)]
)
def test_tokens_are_those_of_whole_sequences(gpus: int, kv_gib: float, tokens: int) -> None:
    """Logs of 0.22.1 with the cache and the tokens of gpt-oss-120b.

    Their context is not in them: 1,024 tokens each way and 20 beside give all three figures.
    """
    flags = {"tensor_parallel_size": gpus, "max_model_len": 2068, "kv_cache_memory_bytes": int(kv_gib * GIB)}
    plan = planned({"model_type": "gpt_oss", **GPT_OSS}, "H200", "0.22.1", **flags)

    assert tokens == pytest.approx(plan.kv_cache_tokens, rel=0.002)


def test_windows_hold_fewer_tokens_since_the_log_counts_sequences() -> None:
    """Of 60 layers 50 have a window: 0.20 says bytes ÷ bytes of all layers, 0.21 what whole sequences come to."""
    config = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 60,
        "hidden_size": 5376,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_global_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 1024,
        "max_position_embeddings": 262144,
        "torch_dtype": "bfloat16",
    }
    flags = {"kv_cache_memory_bytes": 50 * GIB}
    before, since = (planned(config, "A100 80GB", release, **flags) for release in ("0.20.0", "0.21.0"))

    assert 55_000 == pytest.approx(before.kv_cache_tokens, rel=0.02)
    assert 525_000 == pytest.approx(since.kv_cache_tokens, rel=0.15)
    assert version_tuple("0.21.0") > version_tuple(before.deployment.engine_version)


def test_blocks_become_as_large_as_a_state() -> None:
    """A log of Qwen3.8-27B on an A6000 (club-3090#1047): 1,568 tokens a block, padded by 0.13%."""
    config = {**LINEAR, "linear_num_value_heads": 48, "mamba_ssm_dtype": "float32"}
    plan = planned(config, "A6000", kv_cache_dtype="fp8", max_model_len=32768)
    assert plan.pool is not None
    state = 48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2

    assert 1568 == plan.pool.block_tokens
    assert 1.0013 == pytest.approx(plan.pool.block_bytes / 12 / state, abs=5e-5)


COUNTED: dict[str, int] = json.loads((Path(__file__).parent / "data" / "parameters.json").read_text())["parameters"]


@pytest.mark.parametrize("family", COUNTED)
def test_a_family_has_as_many_parameters_as_its_model(family: str) -> None:
    """By the default config of each family, beside what Transformers builds of it without weights."""
    facts = facts_from_config({"model_type": family}, family)

    assert facts.is_counted
    assert COUNTED[family] == pytest.approx(facts.parameters, rel=0.03)
