"""A command line becomes the same engine in the simulator as in the plan, with vLLM's own defaults."""

import pytest

from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.predict.memory_plan import plan_memory
from tokenpeak.predict.model import model_facts
from tokenpeak.records import Config, Gpu, ModelName, NodeFacts
from tokenpeak.sim.settings import Settings, parse_serve, resolve
from tokenpeak.sim.simulated_node import devices

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def played(
    *flags: str, gpu: str = "A100 80GB", count: int = 1, version: str = "0.32.0", model: str = MODEL
) -> Settings:
    node = devices({"TOKENPEAK_SIM_GPU": gpu, "TOKENPEAK_SIM_GPU_COUNT": str(count)})
    return resolve(parse_serve([MODEL, *flags], version), version, node, {})


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize(
    ("gpu", "count", "version", "flags"),
    [
        ("NVIDIA L4", 1, "0.32.0", {"max_model_len": 4096}),
        ("NVIDIA H100 80GB HBM3", 2, "0.32.0", {"tensor_parallel_size": 2, "max_num_seqs": 512}),
        ("NVIDIA A100-SXM4-80GB", 4, "0.24.0", {"pipeline_parallel_size": 4, "gpu_memory_utilization": 0.8}),
        ("Tesla V100-PCIE-32GB", 4, "0.8.5", {"tensor_parallel_size": 4, "dtype": "float16", "max_model_len": 32768}),
        ("NVIDIA H200", 1, "0.14.1", {"quantization": "fp8", "kv_cache_dtype": "fp8", "max_num_batched_tokens": 16384}),
    ],
)
def test_the_plan_predicts_the_simulators_cache(
    gpu: str, count: int, version: str, flags: dict[str, int | float | str], eager: bool
) -> None:
    """KV cache, batch and defaults are the same numbers on both sides."""
    facts, model = gpu_facts(gpu), model_facts(MODEL)
    assert facts and model
    boards = tuple(
        Gpu(index=index, name=gpu, vram_bytes=facts.vram_bytes, compute_capability=facts.compute_capability)
        for index in range(count)
    )
    node = NodeFacts(node="n", source="declared", gpus=boards)
    every = {**flags, **({"enforce_eager": True} if eager else {})}
    config = Config(config_id="0" * 12, name="c", model=ModelName(name=MODEL, served_name=MODEL), flags=every)
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    simulated = played(*words, *(["--enforce-eager"] if eager else []), gpu=gpu, count=count, version=version)
    predicted = plan_memory(config, node, model, version)

    assert predicted is not None
    assert predicted.kv_cache_tokens == simulated.kv_tokens
    assert predicted.deployment.max_num_seqs == simulated.max_num_seqs
    assert predicted.deployment.max_num_batched_tokens == simulated.deployment.max_num_batched_tokens
