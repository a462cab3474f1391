"""Engine core, V0 or V1 by release, variables, device and features; and the model runner with its CUDA graphs.

Up to 0.7 the core is V0 unless VLLM_USE_V1 is 1, from 0.11 it is V1 alone. Between them the engine takes V1 for what V1
knows. Sources, all engine/arg_utils.py: `_is_v1_supported_oracle` in 0.8.5 1292-1499, 0.9.2 1306-1505 and 0.10.2
1431-1564, with `_raise_or_fallback` and `_warn_or_fallback` in 0.8.5 1649-1673.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenpeak.vllm.flags import json_value, size
from tokenpeak.vllm.renames import speculative_config

CORE_VARIABLES = ("VLLM_ATTENTION_BACKEND", "VLLM_FLASH_ATTN_VERSION", "VLLM_USE_V1")
"""Variables that the core depends on."""
V0_FLAGS: tuple[tuple[str, object, tuple[int, int]], ...] = (
    ("logits_processor_pattern", None, (0, 10)),
    ("preemption_mode", None, (0, 10)),
    ("disable_async_output_proc", False, (0, 10)),
    ("scheduling_policy", "fcfs", (0, 8)),
    ("num_scheduler_steps", 1, (0, 9)),
    ("scheduler_delay_factor", 0.0, (0, 10)),
    ("enable_prompt_adapter", False, (0, 9)),
    ("enable_prompt_embeds", False, (0, 10)),
    ("max_num_partial_prefills", 1, (0, 10)),
    ("max_long_partial_prefills", 1, (0, 10)),
    ("otlp_traces_endpoint", None, (0, 9)),
    ("collect_detailed_traces", None, (0, 9)),
)
"""Flags whose other values V1 lacks: name, default, last minor release in which that is so."""
V1_BACKENDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(
        (
            *("FLASH_ATTN_VLLM_V1", "FLASH_ATTN", "PALLAS", "PALLAS_VLLM_V1", "TRITON_ATTN_VLLM_V1", "TRITON_MLA"),
            *("FLASHMLA", "FLASHINFER", "FLASHINFER_VLLM_V1"),
        ),
        (0, 8),
    ),
    **dict.fromkeys(("ROCM_AITER_MLA", "TORCH_SDPA_VLLM_V1", "FLEX_ATTENTION", "CUTLASS_MLA_VLLM_V1"), (0, 9)),
    **dict.fromkeys(
        ("CUTLASS_MLA", "FLASHMLA_VLLM_V1", "FLASH_ATTN_MLA", "FLASHINFER_MLA", "TREE_ATTN", "XFORMERS_VLLM_V1"),
        (0, 10),
    ),
}
"""Attention backends of V1, each with the first minor release that takes it."""
SECOND_SINCE_0_24 = frozenset({"qwen3", "deepseek_v2", "qwen2_moe", "granitemoe", "llama", "mistral"})
"""Model types that 0.24 to 0.27 give the second runner (0.24.0 config/vllm.py 68-77); 0.22 only a dense qwen3."""
SECOND_MIXTURES_0_28 = frozenset({"deepseek_v2", "deepseek_v4", "granitemoe", "qwen2_moe"})
"""Mixtures of experts that 0.28 and 0.29 give it; they give it to all dense models (0.28.0 config/vllm.py 69-80)."""
SECOND_SPECULATES = ("eagle", "eagle3", "mtp", "dflash", "dspark")
"""Speculation that the second runner knows."""


@dataclass(frozen=True, kw_only=True)
class CoreFacts:
    """Facts that the choice of the core depends on. `capability` is 80 for 8.0, None where it is not known."""

    release: tuple[int, int, int]
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    vendor: str
    """nvidia, amd or cpu; a CPU is taken for x86."""
    capability: int | None
    mla: bool = False
    """The model has multi-head latent attention."""
    windowed: bool = False
    """The model has a sliding window."""

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor number."""
        return self.release[:2]


def runs_v1(engine: CoreFacts) -> bool:
    """Whether the engine core is V1."""
    variable = engine.env.get("VLLM_USE_V1")
    if engine.minor >= (0, 11) or engine.minor < (0, 8):
        return engine.minor >= (0, 11) or variable == "1"
    if variable == "0" or lacking_in_v1(engine):
        return False
    return variable == "1" or experimental_in_v1(engine) is None


def lacking_in_v1(engine: CoreFacts) -> str | None:
    """Feature that V1 of 0.8 to 0.10 does not know: the engine falls back to V0, or refuses it with VLLM_USE_V1=1."""
    flags = engine.flags
    for name, default, last in V0_FLAGS:
        if engine.minor <= last and flags.get(name) not in (None, default):
            return f"{name} {flags[name]}"
    early, backend = engine.minor < (0, 9), engine.env.get("VLLM_ATTENTION_BACKEND")
    structured = str(flags.get("guided_decoding_backend") or "auto").split(":")[0]
    # 0.10.1.1 1400-1405; 0.10.2 no longer looks at the compute capability.
    if engine.vendor == "nvidia" and engine.capability is not None and engine.capability < 80 <= _least(engine):
        return f"compute capability {engine.capability / 10}"
    if flags.get("load_format") in (("sharded_state", "tensorizer") if early else ("sharded_state",)):
        return f"load_format {flags['load_format']}"
    if engine.minor < (0, 10) and structured not in ("auto", "xgrammar", "guidance"):
        return f"guided_decoding_backend {structured}"
    if not _keeps_kv_cache(engine):
        return f"kv_cache_dtype {flags['kv_cache_dtype']}"
    if engine.minor < (0, 10) and _speculation(engine) == "other":
        return "this speculation"
    if backend is not None and V1_BACKENDS.get(backend, (9, 9)) > engine.minor:
        return f"VLLM_ATTENTION_BACKEND={backend}"
    if engine.vendor == "cpu" and (early or engine.windowed):
        return "the CPU" if early else "a sliding window on the CPU"
    return _lacking_in_0_8(engine) if early else None


def _least(engine: CoreFacts) -> int:
    """The compute capability that V1 asks for."""
    return 80 if engine.release < (0, 10, 2) else 0


def _lacking_in_0_8(engine: CoreFacts) -> str | None:
    flags = engine.flags
    if flags.get("dtype") in ("float32", "float"):
        return "dtype float32"
    if flags.get("quantization") == "gguf":
        return "quantization gguf"
    if flags.get("task") not in (None, "auto", "generate"):
        return f"task {flags['task']}"
    if (size(str(flags.get("pipeline_parallel_size") or 1)) or 1) > 1 and flags.get(
        "distributed_executor_backend"
    ) != "ray":
        return "pipeline_parallel_size without Ray"
    return None


def experimental_in_v1(engine: CoreFacts) -> str | None:
    """Feature that needs VLLM_USE_V1=1: in 0.8 n-gram and EAGLE, and GPUs that are not NVIDIA's (1484-1496)."""
    if engine.minor >= (0, 9):
        return None
    if (kind := _speculation(engine)) is not None:
        return kind
    return "this device" if engine.vendor != "nvidia" else None


def _speculation(engine: CoreFacts) -> str | None:
    """ngram, or the trained head that V1 knows; `other` for what it does not know, None without speculation."""
    config = speculative_config(engine.flags)
    if config is None:
        return None
    method = config.get("method") or ("ngram" if config.get("model") in ("ngram", "[ngram]") else "other")
    method = "ngram" if method == "[ngram]" else str(method)
    known = (
        ("ngram", "eagle", "eagle3")
        if engine.minor < (0, 9)
        else ("ngram", "eagle", "eagle3", "medusa", "deepseek_mtp")
    )
    return method if method in known else "other"


def _keeps_kv_cache(engine: CoreFacts) -> bool:
    """Whether V1 takes the KV cache's dtype.

    0.8.5 engine/arg_utils.py 1358-1373, 0.9.2 1366-1382; 0.10.1.1 platforms/cuda.py 498-508, 0.10.2 522-563.
    """
    dtype, backend = str(engine.flags.get("kv_cache_dtype") or "auto"), engine.env.get("VLLM_ATTENTION_BACKEND")
    if dtype == "auto" or (engine.vendor == "nvidia" and engine.capability is None):
        return True
    if engine.vendor != "nvidia":
        return engine.vendor == "amd" and engine.minor >= (0, 9)
    fp8, hopper = dtype.startswith("fp8"), (engine.capability or 0) // 10 == 9
    flash_3 = hopper and engine.env.get("VLLM_FLASH_ATTN_VERSION", "3") == "3"
    if engine.release < (0, 10, 2):
        blackwell = engine.capability == 100 and engine.minor == (0, 10)
        return blackwell or (fp8 and flash_3 and backend in (None, "FLASH_ATTN_VLLM_V1"))
    if engine.mla:
        return backend in (None, "FLASHMLA", "CUTLASS_MLA") or not fp8
    if engine.capability == 100 or backend == "FLASHINFER":
        return True
    if backend == "TRITON_ATTN_VLLM_V1":
        return (engine.capability or 0) >= 89
    return backend in (None, "FLASH_ATTN_VLLM_V1") and (flash_3 or not fp8)


def chunks_prefill(engine: CoreFacts, *, v1: bool, max_model_len: int) -> bool:
    """Whether prompts are prefilled in chunks.

    V1 up to 0.10 sets `enable_chunked_prefill` itself, whatever was asked: engine/arg_utils.py in 0.8.5 1569, 0.9.2
    1579, 0.10.2 1623. V0 chunks of its own accord only for contexts beyond 32,768 (0.8.5 1506-1533).
    """
    given = engine.flags.get("enable_chunked_prefill")
    if v1 and engine.minor < (0, 11):
        return True
    if v1 or given is not None:
        return given is None or bool(given)
    flags = engine.flags
    plain = not (flags.get("enable_lora") or flags.get("enable_prompt_adapter") or speculative_config(flags))
    return max_model_len > 32768 and engine.vendor == "nvidia" and plain and not (engine.mla or engine.windowed)


def schedules_ahead(engine: CoreFacts, *, v1: bool) -> bool:
    """Whether the next step is scheduled while the device computes this one (`async_scheduling`).

    The default since 0.14, not on a CPU, under Ray, or with speculation by other means than trained heads; with
    pipeline stages not before 0.24. Sources: config/vllm.py in 0.14.1 588-628, 0.24.0 964-1004 and 0.32.0 1585-1644;
    platforms/cpu.py in 0.14.1 197 and 0.32.0 331; v1/engine/core.py in 0.24.0 519 (`step_with_batch_queue`).
    """
    flags, given = engine.flags, engine.flags.get("async_scheduling")
    if not v1 or engine.vendor == "cpu" or given is False:
        return False
    if given is not None or engine.minor < (0, 14):
        return bool(given)
    if flags.get("distributed_executor_backend") == "ray":
        return False
    if (size(str(flags.get("pipeline_parallel_size") or 1)) or 1) > 1 and engine.minor < (0, 24):
        return False
    config = speculative_config(flags)
    return config is None or str(config.get("method")).endswith(("eagle", "eagle3", "mtp", "ngram_gpu"))


def batch_defaults(engine: CoreFacts, *, v1: bool, device: str, memory_gib: float, world: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) of an OpenAI server; `world` is tensor × pipeline parallel devices.

    Sources, engine/arg_utils.py: 0.8.5 1596-1610 (the A100 as all others), 0.9.2 1629-1674, 0.10.2 1669-1715,
    0.28.0 2582 (160 GiB), 0.32.0 2923-2971 (`get_batch_defaults`). The driver gives no total of memory that a GPU
    shares with its host, which counts as none: logs of a GB10 from 0.11 to 0.18.
    """
    if not v1 or "gb10" in device.casefold():
        return 2048, 256
    if engine.vendor == "cpu":
        return (2048, 32) if engine.minor < (0, 10) else (2048 * world, 128 * world)
    if memory_gib >= 160 and engine.minor >= (0, 28):
        return 16384, 1024
    if memory_gib >= 70 and ("a100" not in device.casefold() or engine.minor < (0, 9)):
        return 8192, 1024
    return 2048, 256


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

    The first runner does since 0.20 (envs.py: 0.19.1 1654, 0.20.0 1724), on AMD not before 0.28 (0.24.0
    v1/worker/gpu_worker.py 445). The second one says 0 in 0.22.1, 0.24.0 and 0.28.0 (v1/worker/gpu/model_runner.py
    620, 684, 843) and measures in 0.30.0 (v1/worker/gpu/cudagraph_utils.py 847).
    """
    release = engine.release[:2]
    if second_runner(engine):
        return release >= (0, 30)
    return release >= ((0, 28) if engine.vendor == "amd" else (0, 20))


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
