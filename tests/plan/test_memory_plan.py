from typing import Any

import pytest

from tokenpeak.errors import FactsError
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.memory_plan import plan_memory
from tokenpeak.predict.model import model_facts
from tokenpeak.records import Config, Gpu, ModelName, NodeFacts

LLAMA = model_facts("meta-llama/Llama-3.1-8B-Instruct")


def node(*names: str, version: str = "0.32.0", **facts: Any) -> NodeFacts:
    gpus = tuple(Gpu(index=index, name=name) for index, name in enumerate(names))
    return NodeFacts(node="n", source="declared", gpus=gpus, engine_version=version, **facts)


def config(env: dict[str, str] | None = None, **flags: Any) -> Config:
    return Config(config_id="0" * 12, name="c", model=ModelName(name="m", served_name="m"), flags=flags, env=env or {})


def test_reads_sizes_as_the_engine_does() -> None:
    """`8k` is 8,000 and `8K` 8,192; a cache of `2G` is 2 GiB."""
    short = plan_memory(
        config(max_model_len="8k", max_num_batched_tokens="4K", kv_cache_memory_bytes="2G"), node("L4"), LLAMA
    )
    assert short is not None

    assert (8000, 4096) == (short.max_model_len, short.deployment.max_num_batched_tokens)
    assert 2 * GIB == short.kv_cache_memory_bytes


@pytest.mark.parametrize("longest", ["auto", -1])
def test_the_longest_context_is_what_fits(longest: str | int) -> None:
    """Asked for the longest context, the engine takes the model's, or as much of it as there is memory for."""
    small, large = (plan_memory(config(max_model_len=longest), node(gpu), LLAMA) for gpu in ("L4", "NVIDIA H200"))
    assert small is not None and large is not None and LLAMA is not None

    assert small.fits and small.max_model_len == small.kv_cache_tokens < LLAMA.max_context
    assert large.max_model_len == LLAMA.max_context


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens of config 'c' is 0; give a number from 1"),
        ({"tensor_parallel_size": -2}, "tensor_parallel_size of config 'c' is -2; give a number from 1"),
        ({"max_num_seqs": "many"}, "max_num_seqs of config 'c' is 'many'; give a number"),
    ],
)
def test_a_count_below_one_is_refused(flags: dict[str, Any], words: str) -> None:
    """No engine starts so, and nothing can be computed of it."""
    with pytest.raises(FactsError, match=words):
        plan_memory(config(**flags), node("L4"), LLAMA)


@pytest.mark.parametrize("flags", [{"quantization": "torchao"}, {"kv_cache_dtype": "turboquant_k8v4"}])
def test_a_width_that_only_the_engine_knows_is_planned_without_prediction(flags: dict[str, Any]) -> None:
    """A method of the engine's own that is not described here keeps no sweep from trying it."""
    assert plan_memory(config(**flags), node("L4"), LLAMA) is None


@pytest.mark.parametrize(
    ("gpu", "version", "expected"),
    [
        ("NVIDIA L4", "0.32.0", (2048, 256)),
        ("NVIDIA H200", "0.32.0", (8192, 1024)),
        ("NVIDIA B200", "0.32.0", (16384, 1024)),
        ("NVIDIA B200", "0.22.1", (8192, 1024)),
    ],
)
def test_fills_in_the_batch_that_the_engine_would(gpu: str, version: str, expected: tuple[int, int]) -> None:
    """Batched tokens and sequences default by memory, device and release."""
    memory = plan_memory(config(), node(gpu), LLAMA, version)
    assert memory is not None

    assert expected == (memory.deployment.max_num_batched_tokens, memory.deployment.max_num_seqs)
