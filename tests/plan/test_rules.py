from typing import Any

import pytest

from node_models import known_model
from tokenpeak.plan.rules import advice, dropped_because
from tokenpeak.records import Config, Gpu, ModelName, NodeFacts

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
R1_32B = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
V100, T4, A100, H100 = "Tesla V100-PCIE-32GB", "Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def node(gpu: str, count: int = 1) -> NodeFacts:
    return NodeFacts(node="n", source="declared", gpus=tuple(Gpu(index=i, name=gpu) for i in range(count)))


def config(env: dict[str, str] | None = None, **flags: Any) -> Config:
    return Config(
        config_id="0" * 12, name="mine", model=ModelName(name="m", served_name="m"), flags=flags, env=env or {}
    )


def rule(
    gpu: str,
    version: str | None,
    *,
    count: int = 1,
    model: str | None = LLAMA_8B,
    env: dict[str, str] | None = None,
    **flags: Any,
) -> str | None:
    """The code of the rule that forbids these flags, None when they may run."""
    small = {"max_model_len": 4096, **flags}
    found = dropped_because(config(env, **small), node(gpu, count), known_model(model) if model else None, version)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("expected", "gpu", "version", "flags"),
    [
        # Parallelism
        ("gpus", A100, "0.32.0", {"count": 4, "tensor_parallel_size": 2, "data_parallel_size": 4}),
        (None, A100, "0.32.0", {"count": 8, "tensor_parallel_size": 2, "pipeline_parallel_size": 4}),
        ("attention_heads", A100, "0.32.0", {"count": 4, "tensor_parallel_size": 3}),
        ("layers", A100, "0.32.0", {"count": 64, "pipeline_parallel_size": 64}),
        # More than one node: the engine would wait for the others
        ("one_node", A100, "0.32.0", {"nnodes": 2, "count": 8, "tensor_parallel_size": 16}),
        ("one_node", A100, "0.32.0", {"count": 2, "tensor_parallel_size": 2, "distributed_executor_backend": "ray"}),
        (None, A100, "0.32.0", {"count": 2, "tensor_parallel_size": 2, "distributed_executor_backend": "mp"}),
        ("one_node", A100, "0.32.0", {"count": 2, "data_parallel_size": 2, "data_parallel_backend": "ray"}),
        ("one_node", A100, "0.32.0", {"headless": True}),
        # dtype against compute capability
        ("dtype", V100, "0.8.5.post1", {"dtype": "bfloat16"}),
        ("dtype", V100, "0.8.5.post1", {}),
        (None, V100, "0.8.5.post1", {"dtype": "half"}),
        # The engine against the GPU
        ("engine_gpu", V100, "0.32.0", {"dtype": "half"}),
        ("engine_v1", V100, "0.8.5", {"dtype": "half", "env": {"VLLM_USE_V1": "1"}}),
        (None, V100, "0.10.2", {"dtype": "half", "env": {"VLLM_USE_V1": "1"}}),
        ("engine_v1", A100, "0.8.5", {"kv_cache_dtype": "fp8", "env": {"VLLM_USE_V1": "1"}}),
        (None, A100, "0.8.5", {"kv_cache_dtype": "fp8"}),
        # V1 up to 0.10 chunks prompts whatever is asked, so that the batch need not hold one.
        (None, H100, "0.8.5", {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048}),
        ("batched_tokens", H100, "0.32.0", {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048}),
        # Quantization against compute capability, dtype, checkpoint and release
        ("quantization_gpu", V100, "0.8.5", {"dtype": "half", "quantization": "fp8"}),
        (None, T4, "0.32.0", {"dtype": "half", "quantization": "fp8", "max_model_len": 512}),
        ("quantization_dtype", A100, "0.8.5", {"dtype": "bfloat16", "quantization": "gptq"}),
        ("quantization_release", A100, "0.33.0", {"quantization": "gguf"}),
        (None, H100, "0.32.0", {"quantization": "fp8"}),
        # KV cache dtype
        ("kv_cache_dtype", T4, "0.32.0", {"dtype": "half", "kv_cache_dtype": "fp8"}),
        ("kv_cache_dtype", H100, "0.32.0", {"kv_cache_dtype": "nvfp4"}),
        (None, A100, "0.32.0", {"kv_cache_dtype": "fp8"}),
        # Lengths and batches
        ("context", A100, "0.32.0", {"max_model_len": 200_000}),
        (None, A100, "0.32.0", {"max_model_len": 200_000, "env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}),
        ("batched_tokens", V100, "0.8.5", {"dtype": "half", "max_num_batched_tokens": 2048}),
        (None, A100, "0.32.0", {"max_num_batched_tokens": 2048}),
        ("sequences", A100, "0.32.0", {"max_num_batched_tokens": 64, "max_num_seqs": 128}),
        ("utilization", A100, "0.32.0", {"gpu_memory_utilization": 1.5}),
        # Memory
        ("memory", T4, "0.32.0", {"dtype": "half"}),
        ("memory", A100, "0.32.0", {"kv_cache_memory_bytes": 1_048_576}),
        ("memory", V100, "0.8.5", {"model": R1_32B, "dtype": "half", "count": 4, "tensor_parallel_size": 2}),
        (None, V100, "0.8.5", {"model": R1_32B, "dtype": "half", "count": 4, "tensor_parallel_size": 4}),
        # Speculation
        ("speculation", A100, "0.32.0", {"speculative_config": '{"method":"ngram","num_speculative_tokens":0}'}),
        ("speculation", A100, "0.11.2", {"speculative_config": '{"model":"draft","num_speculative_tokens":3}'}),
        (None, A100, "0.32.0", {"speculative_config": '{"model":"draft","num_speculative_tokens":3}'}),
        (
            "speculation",
            A100,
            "0.32.0",
            {
                "speculative_config": '{"method":"ngram","num_speculative_tokens":3,'
                '"prompt_lookup_min":5,"prompt_lookup_max":2}'
            },
        ),
        ("speculation", A100, "0.7.3", {"speculative_model": "draft", "num_speculative_tokens": 3,
                                         "count": 2, "pipeline_parallel_size": 2}),
    ],
)  # fmt: skip
def test_rule_forbids_what_the_engine_refuses(
    expected: str | None, gpu: str, version: str, flags: dict[str, Any]
) -> None:
    """Each rule forbids what that release refuses on that GPU, and nothing beside it."""
    assert expected == rule(gpu, version, **flags)


def test_a_release_that_is_not_known_is_not_held_against_an_old_gpu() -> None:
    """A machine that was only looked at says no release; a probe does, before anything is launched."""
    flags = config(dtype="half", max_model_len=4096)

    assert dropped_because(flags, node(V100), None, None) is None
    assert dropped_because(flags, node(V100), None, "0.32.0") is not None


def test_reason_names_the_value_and_the_source() -> None:
    """A dropped config says what is wrong, with which value, and which release's file says so."""
    found = dropped_because(config(dtype="bfloat16"), node(V100), None, "0.8.5.post1")

    assert found is not None
    assert [] == [word for word in ("bfloat16", "8.0", "7.0", V100, "0.8.5 worker/worker.py") if word not in found[1]]


@pytest.mark.parametrize(
    ("word", "gpu", "flags"),
    [
        ("no fp8 arithmetic", A100, {"quantization": "fp8"}),
        ("no fp8 arithmetic", A100, {"kv_cache_dtype": "fp8"}),
        ("PCIe", V100, {"tensor_parallel_size": 2}),
        ("leaves little", A100, {"gpu_memory_utilization": 0.97}),
    ],
)
def test_advice_says_what_speaks_against(word: str, gpu: str, flags: dict[str, Any]) -> None:
    """What may run but will probably not pay is said."""
    found = advice(config(dtype="half", max_model_len=4096, **flags), node(gpu, 4), known_model(LLAMA_8B), "0.10.2")

    assert any(word in text for text in found)
