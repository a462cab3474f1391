"""Equivalence classes: configs that cannot differ under a sweep's workloads, so that one of each stands for all.

Two configs share a class when they are equal once every limit that this load can never reach has been struck out:
sequences beyond the most requests in flight, batched tokens beyond the most that a step can hold, and context length
and memory beyond what the load can ever fill of the KV cache, prefixes that requests share included. Anything
not understood keeps configs apart.
"""

import hashlib
import json
from collections.abc import Sequence

from tokenpeak.predict.demand import Demand
from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.records import Config

_MEMORY_ONLY = ("gpu_memory_utilization", "kv_cache_memory_bytes", "swap_space", "max_model_len")
"""Flags that only change how much KV cache there is, or how long a request may be."""

_SPARE = 1.1
"""KV cache is never short when it holds a tenth more than the load can fill: block rounding, and the last step."""


def class_key(config: Config, memory: MemoryPlan | None, demands: Sequence[Demand]) -> str:
    """The class of a config under these runs, as 8 hex digits; without facts each config is a class of its own."""
    if memory is None:
        return config.config_id[:8]
    deployment = memory.deployment
    settings: dict[str, object] = {
        key: value
        for key, value in config.flags.items()
        if key not in (*_MEMORY_ONLY, "max_num_seqs", "max_num_batched_tokens")
    }
    settings.setdefault("enforce_eager", deployment.eager)
    settings.setdefault("tensor_parallel_size", deployment.tensor_parallel)
    settings.setdefault("pipeline_parallel_size", deployment.pipeline_parallel)
    settings["dtype"] = _dtype(memory)

    flight = _largest([demand.concurrency for demand in demands])
    longest = _largest([demand.longest_tokens for demand in demands])
    prompt = _largest([demand.longest_input_tokens for demand in demands])
    sequences: int | str = deployment.max_num_seqs
    if flight is not None and deployment.max_num_seqs >= flight:
        sequences = "all requests in flight"
    settings["max_num_seqs"] = sequences

    running = deployment.max_num_seqs if flight is None else min(flight, deployment.max_num_seqs)
    step = None if prompt is None else running * (prompt + 1)
    if step is not None and deployment.max_num_batched_tokens >= step:
        settings["max_num_batched_tokens"] = "all prompts in flight"
    else:
        settings["max_num_batched_tokens"] = deployment.max_num_batched_tokens

    shared = _largest([demand.shared_tokens for demand in demands]) if memory.prefix_caching else 0
    never_short = False
    if longest is not None and shared is not None and longest <= memory.max_model_len:
        never_short = memory.kv_cache_tokens >= (running * longest + shared) * _SPARE
    if never_short:
        settings["kv_cache"] = "never short"
    else:
        settings["kv_cache"] = {flag: config.flags.get(flag) for flag in _MEMORY_ONLY}
        settings["max_num_seqs"] = deployment.max_num_seqs
        settings["max_num_batched_tokens"] = deployment.max_num_batched_tokens
    content = [config.model.model_dump(), settings, config.env, config.engine_version, config.engine]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _dtype(memory: MemoryPlan) -> str:
    """The dtype with `auto` and its other names resolved."""
    dtype = memory.deployment.dtype
    if dtype == "auto":
        dtype = memory.deployment.model.dtype
    return {"half": "float16", "float": "float32"}.get(dtype, dtype)


def _largest(values: Sequence[int | None]) -> int | None:
    """The largest, or None when one of them is unknown."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None
