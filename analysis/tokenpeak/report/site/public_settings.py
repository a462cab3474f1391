"""Public settings: values of flags, variables and JSON keys that everybody has, and that may therefore leave.

Numbers, yes and no, loopback, and words that vLLM and its libraries give meaning to are public under any name. Other
words are public under the names below alone; whatever else a setting holds is its author's own.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from tokenpeak.sensitive import HARMLESS_HOSTS, LABEL, PLAIN
from tokenpeak.vllm.flags import flag_table

_WORDS = """
architectures attention_backend attn_implementation backend cudagraph_mode custom_ops data_parallel_backend
distributed_executor_backend dtype kv_buffer_device kv_cache_dtype kv_connector kv_role load_format mamba_backend
method mm_encoder_attn_backend mode model_impl model_type ops preemption_mode quant_method quantization
reasoning_parser rope_type safetensors_load_strategy splitting_ops tokenizer_mode tool_call_parser torch_dtype type
CUDA_DEVICE_ORDER CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
NVIDIA_DRIVER_CAPABILITIES NVIDIA_VISIBLE_DEVICES NCCL_ALGO NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_LAUNCH_MODE
NCCL_NET_GDR_LEVEL NCCL_P2P_LEVEL NCCL_PROTO KMP_AFFINITY OMP_PLACES OMP_PROC_BIND OMP_WAIT_POLICY
PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF TORCH_CUDA_ARCH_LIST
TOKENPEAK_SIM_DRIVER TOKENPEAK_SIM_FAULT TOKENPEAK_SIM_GPU TOKENPEAK_SIM_LINKS TOKENPEAK_SIM_VERSION
VLLM_ALL2ALL_BACKEND VLLM_ATTENTION_BACKEND VLLM_FLASHINFER_MOE_BACKEND VLLM_FLOAT32_MATMUL_PRECISION
VLLM_KV_CACHE_LAYOUT VLLM_LOGGING_LEVEL VLLM_NVFP4_GEMM_BACKEND VLLM_ROCM_QUICK_REDUCE_QUANTIZATION
VLLM_TARGET_DEVICE VLLM_WORKER_MULTIPROC_METHOD
"""
WORDS = frozenset(_WORDS.split())
"""Names whose values are words of vLLM, of a library or of the simulated engine."""
_MODELS = "model revision served_model_name spec_model speculative_model tokenizer tokenizer_revision"
MODELS = frozenset(_MODELS.split())
"""Names of models, which a site is about; of a path its last part leaves."""
_NUMBERS = re.compile(r"[\d.,:;x-]*")
_IS_WORD = re.compile(r"[\w.,:;+|() -]{1,80}")
_OF_VLLM = re.compile(r"vllm(?:\.\w+)+")


def is_public(name: str, value: object) -> bool:
    """Whether a setting's value, which is no JSON, may leave as it is."""
    if not isinstance(value, str):
        return True
    host = value.rpartition(":")[0] if re.search(r":\d+$", value) else value
    if _NUMBERS.fullmatch(value) and value.count(".") < 3:
        return True
    if PLAIN.fullmatch(value) or LABEL.fullmatch(value) or {host, value} & HARMLESS_HOSTS or value in _choices():
        return True
    return _OF_VLLM.fullmatch(value) is not None or (_plain(name) in WORDS and _IS_WORD.fullmatch(value) is not None)


def is_model(name: str) -> bool:
    """Whether a setting of this name says a model."""
    return _plain(name) in MODELS


def private_values(name: str, value: object) -> Iterator[str]:
    """The texts in a setting's value that do not leave."""
    if isinstance(value, str) and (parsed := json_of(value)) is not None:
        value = parsed
    if isinstance(value, dict):
        for key, item in value.items():
            yield from private_values(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from private_values(name, item)
    elif isinstance(value, str) and not is_public(name, value) and not is_model(name):
        yield value


def json_of(value: str) -> dict[str, Any] | list[Any] | None:
    """The object or list that a text is, as values of some flags are; None for other texts."""
    if not value.lstrip().startswith(("{", "[")):
        return None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict | list) else None


@cache
def _choices() -> frozenset[object]:
    """What flags of vLLM may be, and its quantizations: words of everybody's."""
    spans = (span for spans in flag_table().flags.values() for span in spans)
    return frozenset(choice for _, _, facts in spans for choice in facts.get("choices", ()))


def _plain(name: str) -> str:
    """`--kv-transfer-config.kv_role` as `kv_role`."""
    return name.lstrip("-").rpartition(".")[2].replace("-", "_")
