"""Shapes of models whose start-up logs are public, as their config.json or the defaults of their family give them.

Quantized ones name the modules that their makers' tools keep by default; a log's weights show how near that is.
"""

from collections.abc import Mapping
from typing import Any

Shape = Mapping[str, Any]

_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def _fp8_by_channel(*kept: str) -> Shape:
    """LLM Compressor's FP8_DYNAMIC."""
    narrow = {"num_bits": 8, "type": "float", "symmetric": True}
    group = {"targets": ["Linear"], "weights": narrow, "input_activations": narrow}
    return {"quant_method": "compressed-tensors", "config_groups": {"0": group}, "ignore": ["lm_head", *kept]}


def _int4(group_size: int, *kept: str) -> Shape:
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "group_size": group_size}
    groups = {"0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head", *kept]}


def _modelopt(algorithm: str) -> Shape:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"]}


_PLAIN = {"torch_dtype": "bfloat16", "tie_word_embeddings": False}
_ATTENTION_AND_SHARED = (
    "re:.*mlp.gate$",
    "re:.*shared_expert.*",
    "re:.*linear_attn.*",
    "re:.*self_attn.*",
)

LLAMA_70B: Shape = {
    **_PLAIN,
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
LLAMA_70B_FP8: Shape = {**LLAMA_70B, "quantization_config": _fp8_by_channel()}

QWEN3_235B_FP8: Shape = {
    **_PLAIN,
    "model_type": "qwen3_moe",
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "quantization_config": _fp8_by_channel("re:.*mlp.gate$"),
}

QWEN3_30B: Shape = {
    **_PLAIN,
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}

_VISION: Shape = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "out_hidden_size": 2048,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_QWEN3_VL: Shape = {
    "model_type": "qwen3_vl_moe_text",
    "head_dim": 128,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
}
QWEN3_VL_30B: Shape = {
    "model_type": "qwen3_vl_moe",
    "tie_word_embeddings": False,
    "text_config": {
        **_QWEN3_VL,
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 32,
        "moe_intermediate_size": 768,
    },
    "vision_config": {**_VISION, "deepstack_visual_indexes": [8, 16, 24]},
}
QWEN3_VL_235B_FP8: Shape = {
    "model_type": "qwen3_vl_moe",
    "tie_word_embeddings": False,
    "text_config": {
        **_QWEN3_VL,
        "num_hidden_layers": 94,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 64,
        "moe_intermediate_size": 1536,
    },
    "vision_config": {**_VISION, "out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]},
    "quantization_config": {**_BLOCKS, "modules_to_not_convert": ["visual", "mlp.gate", "lm_head"]},
}

QWEN3_NEXT: Shape = {
    **_PLAIN,
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
QWEN3_NEXT_INT4: Shape = {**QWEN3_NEXT, "quantization_config": _int4(32, *_ATTENTION_AND_SHARED)}
QWEN3_CODER_NEXT_FP8: Shape = {
    **QWEN3_NEXT,
    "quantization_config": _fp8_by_channel("re:.*mlp.gate$", "re:.*shared_expert_gate$", "re:.*linear_attn.*"),
}


def _qwen3_5(**sizes: int) -> Shape:
    return {
        "model_type": "qwen3_5_moe",
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen3_5_moe_text",
            "head_dim": 256,
            "num_key_value_heads": 2,
            "linear_num_key_heads": 16,
            "vocab_size": 248320,
            "mamba_ssm_dtype": "float32",
            "max_position_embeddings": 262144,
            "dtype": "bfloat16",
            **sizes,
        },
        "vision_config": {**_VISION, "out_hidden_size": sizes["hidden_size"]},
        "quantization_config": _fp8_by_channel(
            "re:.*mlp.gate$", "re:.*shared_expert_gate$", "re:.*linear_attn.*", "re:.*visual.*"
        ),
    }


QWEN3_5_35B: Shape = _qwen3_5(
    num_hidden_layers=40,
    hidden_size=2048,
    num_attention_heads=16,
    num_experts=256,
    num_experts_per_tok=8,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    linear_num_value_heads=32,
)
QWEN3_5_122B: Shape = _qwen3_5(
    num_hidden_layers=48,
    hidden_size=3072,
    num_attention_heads=32,
    num_experts=256,
    num_experts_per_tok=8,
    moe_intermediate_size=1024,
    shared_expert_intermediate_size=1024,
    linear_num_value_heads=64,
)
QWEN3_5_397B: Shape = _qwen3_5(
    num_hidden_layers=60,
    hidden_size=4096,
    num_attention_heads=32,
    num_experts=512,
    num_experts_per_tok=10,
    moe_intermediate_size=1024,
    shared_expert_intermediate_size=1024,
    linear_num_value_heads=64,
)
QWEN3_5_BLOCKS: Shape = {
    **_BLOCKS,
    "modules_to_not_convert": [
        "lm_head",
        "linear_attn.in_proj_a",
        "linear_attn.in_proj_b",
        "mlp.gate",
        "mlp.shared_expert_gate",
        "visual",
    ],
}
QWEN3_5_9B: Shape = {
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "vocab_size": 248320,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
    },
    "vision_config": {**_VISION, "out_hidden_size": 4096},
}

_LATENT: Shape = {
    **_PLAIN,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
}
DEEPSEEK_V3_2: Shape = {
    **_LATENT,
    "model_type": "deepseek_v32",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "n_routed_experts": 256,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "quantization_config": _BLOCKS,
}
DEEPSEEK_V3_2_NVFP4: Shape = {
    **DEEPSEEK_V3_2,
    "quantization_config": {**_modelopt("NVFP4"), "ignore": ["lm_head", "re:.*self_attn.*"]},
}
GLM_5_1: Shape = {
    **_LATENT,
    "model_type": "glm_moe_dsa",
    "num_hidden_layers": 78,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "n_routed_experts": 256,
    "first_k_dense_replace": 3,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "vocab_size": 154880,
    "max_position_embeddings": 202752,
    "quantization_config": _BLOCKS,
}
_KIMI_K2: Shape = {
    **_LATENT,
    "model_type": "kimi_k2",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "max_position_embeddings": 262144,
}
_KIMI_INT4 = _int4(32, "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*")
KIMI_K2_THINKING: Shape = {**_KIMI_K2, "quantization_config": _KIMI_INT4}
KIMI_K2_5: Shape = {
    "model_type": "kimi_k25",
    "torch_dtype": "bfloat16",
    "text_config": _KIMI_K2,
    "vision_config": {
        "hidden_size": 1152,
        "num_hidden_layers": 27,
        "intermediate_size": 4304,
        "patch_size": 14,
    },
    "quantization_config": _KIMI_INT4,
}

MINIMAX_M2_5: Shape = {
    **_PLAIN,
    "model_type": "minimax_m2",
    "num_hidden_layers": 62,
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "vocab_size": 200064,
    "max_position_embeddings": 196608,
    "quantization_config": {**_BLOCKS, "modules_to_not_convert": ["gate", "lm_head"]},
}

MAVERICK: Shape = {
    "model_type": "llama4",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "llama4_text",
        "num_hidden_layers": 48,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "vocab_size": 202048,
        "attention_chunk_size": 8192,
        "no_rope_layers": [1, 1, 1, 0] * 12,
        "max_position_embeddings": 1048576,
        "torch_dtype": "bfloat16",
    },
    "vision_config": {
        "hidden_size": 1408,
        "num_hidden_layers": 34,
        "intermediate_size": 5632,
        "patch_size": 14,
    },
}
MAVERICK_FP8: Shape = {
    **MAVERICK,
    "quantization_config": _fp8_by_channel("re:.*self_attn", "re:.*router", "re:.*vision_model.*"),
}

MINISTRAL_14B: Shape = {
    **_PLAIN,
    "model_type": "mistral3",
    "text_config": {
        "model_type": "ministral3",
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "intermediate_size": 16384,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
        "max_position_embeddings": 262144,
        "torch_dtype": "bfloat16",
    },
    "vision_config": {
        "model_type": "pixtral",
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "patch_size": 14,
    },
}
MINISTRAL_14B_FP8: Shape = {
    **MINISTRAL_14B,
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "ignore": ["lm_head"]},
}

_NEMOTRON: Shape = {
    **_PLAIN,
    "model_type": "nemotron_h",
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "n_shared_experts": 1,
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
}
_NEMOTRON_30B: Shape = {
    **_NEMOTRON,
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "mamba_num_heads": 64,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}
NEMOTRON_3_NANO_FP8: Shape = {**_NEMOTRON_30B, "quantization_config": _modelopt("FP8")}
NEMOTRON_CASCADE_NVFP4: Shape = {**_NEMOTRON_30B, "quantization_config": _modelopt("NVFP4")}
NEMOTRON_3_SUPER_FP8: Shape = {
    **_NEMOTRON,
    "num_hidden_layers": 88,
    # Forty Mamba layers, forty of experts, eight of attention; in another order than here.
    "hybrid_override_pattern": "ME" * 32 + "M*" * 8 + "E" * 8,
    "hidden_size": 4096,
    "intermediate_size": 2688,
    "mamba_num_heads": 128,
    "n_routed_experts": 512,
    "num_experts_per_tok": 22,
    "moe_intermediate_size": 2688,
    "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 5376,
    "quantization_config": _modelopt("FP8"),
}
NEMOTRON_3_NANO_4B_FP8: Shape = {
    **_NEMOTRON,
    "num_hidden_layers": 42,
    "hybrid_override_pattern": "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-",
    "hidden_size": 3136,
    "intermediate_size": 12544,
    "mamba_num_heads": 96,
    "mamba_head_dim": 80,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "mamba_ssm_cache_dtype": "float16",
    "quantization_config": _modelopt("FP8"),
}
GEMMA_3_1B: Shape = {
    "model_type": "gemma3_text",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 26,
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 262144,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 32768,
}

GEMMA_4_31B: Shape = {
    "model_type": "gemma4",
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "gemma4_text",
        "num_hidden_layers": 60,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 4,
        "attention_k_eq_v": True,
        "sliding_window": 1024,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
        "vocab_size": 262144,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
    },
    "vision_config": {
        "hidden_size": 1152,
        "num_hidden_layers": 27,
        "intermediate_size": 4304,
        "patch_size": 16,
    },
}
