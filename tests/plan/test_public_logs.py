"""Public start-up logs of vLLM beside the plan: what was left for the KV cache, and how many tokens that is.

Each row is of a log that states release and board. Where it does not state the context, the engine's default stands,
or that which gives the log's own figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pytest

from node_models import known_board, known_model
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.memory_plan import MemoryPlan, memory_on
from tokenpeak.predict.model import facts_from_config


@dataclass(frozen=True)
class Log:
    """What a log says of one GPU."""

    source: str
    model: str | Mapping[str, Any]
    gpu: str
    release: str
    flags: Mapping[str, Any]
    kv_gib: float | None = None
    tokens: int | None = None
    weights_gib: float | None = None
    apart: Mapping[str, str] = field(default_factory=dict)
    """Figures that are not compared, with the reason."""


QWEN_35B: Mapping[str, Any] = {
    "model_type": "qwen3_5_moe_text",
    "num_hidden_layers": 40,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}

LOGS = (
    *(
        Log(
            "a public sweep's server log",
            "openai/gpt-oss-120b",
            "H200",
            "0.22.1",
            {"tensor_parallel_size": gpus, "max_model_len": 2068},
            kv,
            tokens,
            weights,
        )
        for gpus, kv, tokens, weights in (
            (2, 88.77, 2_560_976, 34.38),
            (4, 106.27, 6_131_009, 17.22),
            (8, 114.85, 13_253_265, 8.66),
        )
    ),
    Log(
        "vllm#27508 and #33155",
        "openai/gpt-oss-120b",
        "H100",
        "0.11.0",
        {"gpu_memory_utilization": 0.95, "max_num_batched_tokens": 1024},
        kv_gib=1.71,
        weights_gib=64.38,
        apart={"kv_gib": "what 65 of 75 GiB leave: 0.2 GiB beside"},
    ),
    Log(
        "a public start-up log (board inferred)",
        "google/gemma-3-27b-it",
        "MI300X",
        "0.11.0",
        {"max_model_len": 4096},
        109.86,
        205_696,
        51.79,
    ),
    Log(
        "a public log (board inferred)",
        "Qwen/Qwen2.5-7B-Instruct",
        "V100-SXM2-32GB",
        "0.18.0",
        {"dtype": "float16", "enforce_eager": True, "max_num_batched_tokens": 8192},
        13.10,
        245_360,
        14.25,
    ),
    Log(
        "llm-d evaluation notes (board inferred)",
        "Qwen/Qwen2.5-14B-Instruct",
        "H100",
        "0.21.0",
        {"max_model_len": 4096},
        41.43,
        226_240,
    ),
    Log(
        "a public log (board inferred)", "Qwen/Qwen3-8B", "A100 40GB", "0.9.0", {"max_model_len": 40960}, 18.69, 136_080
    ),
    Log(
        "vllm#13061",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
        "RTX 4090",
        "0.7.2",
        {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.98},
        8.69,
        81_536,
        13.95,
        apart={"kv_gib": "of the rank with more left; its blocks are those of the other"},
    ),
    Log("vllm#10517", "meta-llama/Llama-3.1-8B", "RTX 3090", "0.6.0", {"max_model_len": 20000}, 3.81, 31_232, 14.99),
    Log("vllm#6746", "meta-llama/Llama-3.1-405B-FP8", "H100", "0.6.0", {"tensor_parallel_size": 8}, weights_gib=57.75),
)


def planned(log: Log, **further: Any) -> MemoryPlan:
    """The plan of a log's engine."""
    model = known_model(log.model) if isinstance(log.model, str) else facts_from_config(dict(log.model), "asked")
    plan = memory_on(known_board(log.gpu), model, {**log.flags, **further}, {}, log.release, config="asked")
    assert plan is not None, "nothing of it is unknown"
    return plan


def off(log: Log) -> dict[str, float]:
    """Predicted ÷ the log's own, less one."""
    plan = planned(log)
    pairs = {
        "weights_gib": (plan.deployment.weight_bytes_per_gpu / GIB, log.weights_gib),
        "kv_gib": (plan.kv_cache_bytes / GIB, log.kv_gib),
        "tokens": (float(plan.kv_cache_tokens), log.tokens),
    }
    return {name: ours / theirs - 1 for name, (ours, theirs) in pairs.items() if theirs and name not in log.apart}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.source}, {log.flags}")
def test_no_log_is_far_off(log: Log) -> None:
    """None above a tenth, and none that ran is dropped."""
    found = off(log)

    assert {} == {name: error for name, error in found.items() if abs(error) > 0.1}
    assert planned(log).kv_cache_bytes > 0


def test_half_of_them_are_within_three_in_a_hundred() -> None:
    """The median error of the tokens."""
    errors = [abs(found["tokens"]) for log in LOGS if "tokens" in (found := off(log))]

    assert len(errors) >= 8
    assert median(errors) <= 0.03


@pytest.mark.parametrize(
    "log",
    [
        *(log for log in LOGS if log.kv_gib and log.tokens and "kv_gib" not in log.apart),
        Log(
            "club-3090#612",
            QWEN_35B,
            "RTX 5090",
            "0.24.0",
            {"max_model_len": 131072, "kv_cache_dtype": "fp8"},
            5.98,
            567_978,
        ),
    ],
    ids=lambda log: f"{log.source}, {log.flags}",
)
def test_a_cache_of_so_many_bytes_holds_so_many_tokens(log: Log) -> None:
    """The log's own bytes give its own tokens: layers, groups, blocks and what is left over, to two in a thousand."""
    assert log.kv_gib is not None
    plan = planned(log, kv_cache_memory_bytes=int(log.kv_gib * GIB))

    assert log.tokens == pytest.approx(plan.kv_cache_tokens, rel=0.002)
