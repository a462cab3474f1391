"""Model runner: V1's first or second one, and the CUDA graphs that it captures."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenpeak.vllm.flags import json_value, size
from tokenpeak.vllm.renames import speculative_config

SECOND_SINCE_0_24 = frozenset({"qwen3", "deepseek_v2", "qwen2_moe", "granitemoe", "llama", "mistral"})
"""Model types that 0.24 to 0.27 give the second runner (0.24.0 config/vllm.py 68-77); 0.22 only a dense qwen3."""

SECOND_MIXTURES_0_28 = frozenset({"deepseek_v2", "deepseek_v4", "granitemoe", "qwen2_moe"})
"""Mixtures of experts that 0.28 and 0.29 give it; they give it to all dense models (0.28.0 config/vllm.py 69-80)."""

SECOND_SPECULATES = ("eagle", "eagle3", "mtp", "dflash", "dspark")
"""Speculation that the second runner knows."""


@dataclass(frozen=True, kw_only=True)
class RunnerFacts:
    """Facts that the choice of the runner and its graphs depend on."""

    release: tuple[int, int, int]
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    vendor: str
    compute_capability: str
    """`10.0`; empty or another word where it is not NVIDIA's."""
    model_type: str
    experts: bool
    quantized: bool


def second_runner(engine: RunnerFacts) -> bool:
    """Whether V1 runs the model with its second runner.

    Source: `use_v2_model_runner`, config/vllm.py in 0.22.1 493-533, 0.24.0 522-561, 0.28.0 615-712, 0.32.0 703-737.
    """
    release, variable = engine.release[:2], engine.env.get("VLLM_USE_V2_MODEL_RUNNER")
    if release < (0, 22) or engine.vendor == "cpu":
        return False
    if variable is not None:
        return variable.casefold() in ("1", "true")
    config = speculative_config(engine.flags)
    if config is not None and str(config.get("method")) not in SECOND_SPECULATES:
        return False
    if engine.flags.get("enable_dbo") or engine.flags.get("enable_prompt_embeds"):
        return False
    if release < (0, 24):
        return engine.model_type == "qwen3" and not engine.quantized
    if release < (0, 28):
        return engine.model_type in SECOND_SINCE_0_24
    return release >= (0, 30) or not engine.experts or engine.model_type in SECOND_MIXTURES_0_28


def reserves_graphs(engine: RunnerFacts) -> bool:
    """Whether the engine sets the graphs' memory aside before it sizes the KV cache.

    The first runner does since 0.21, on AMD not before 0.28 (0.24.0 v1/worker/gpu_worker.py 445). The second one says
    0 in 0.22.1, 0.24.0 and 0.28.0 (v1/worker/gpu/model_runner.py 620, 684, 843) and measures in 0.30.0
    (v1/worker/gpu/cudagraph_utils.py 847).
    """
    release = engine.release[:2]
    if second_runner(engine):
        return release >= (0, 30)
    return release >= ((0, 28) if engine.vendor == "amd" else (0, 21))


def _compilation(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    given = flags.get("compilation_config")
    if isinstance(given, str) and given.startswith("{"):
        given = json_value(given)
    return given if isinstance(given, Mapping) else {}


def _numbers(value: object) -> list[int]:
    """The numbers of a list flag, written as a list, as one number or as words."""
    return [int(word) for word in re.findall(r"\d+", str(value))] if value is not None else []


def capture_sizes(
    engine: RunnerFacts, *, max_num_seqs: int, max_num_batched_tokens: int, draft_tokens: int = 0
) -> tuple[int, ...]:
    """The batch sizes that get a CUDA graph, ascending; none without graphs.

    1, 2, 4, then by 8 to 256 and by 16 above, up to twice the tokens of a decode step and 512; 1,024 since 0.28 on
    compute capability 10.x. By 8 throughout before 0.11. Source, `_set_cudagraph_sizes`: 0.9.2 config.py 4727-4744,
    0.10.2 config/__init__.py 3652-3670, 0.11.2 config/vllm.py 801-890, 0.28.0 1884-1942, 0.32.0 2292-2499.
    """
    compilation, flags = _compilation(engine.flags), engine.flags
    if str(compilation.get("cudagraph_mode", "")).upper() == "NONE":
        return ()
    release = engine.release[:2]
    named = flags.get("cudagraph_capture_sizes", compilation.get("cudagraph_capture_sizes"))
    older = _numbers(flags.get("cuda_graph_sizes"))
    given = _numbers(named) or (older if len(older) > 1 else [])
    if given:
        return tuple(sorted({number for number in given if number <= max_num_batched_tokens}))
    most = 1024 if release >= (0, 28) and engine.compute_capability.startswith("10.") else 512
    limit = flags.get("max_cudagraph_capture_size", compilation.get("max_cudagraph_capture_size"))
    largest = (size(str(limit)) if limit is not None else None) or (older[0] if older else 0)
    if not largest:
        largest = 512 if release < (0, 10) else min(most, 2 * max_num_seqs * (1 + draft_tokens))
    largest = min(largest, max_num_batched_tokens)
    by_8 = range(8, largest + 1, 8) if release < (0, 11) else range(8, min(largest + 1, 256), 8)
    by_16 = range(256, largest + 1, 16) if release >= (0, 11) else ()
    return tuple(number for number in (1, 2, 4, *by_8, *by_16) if number <= largest)
