"""Known settings: flags, variables and JSON keys of vLLM and its libraries, of which values may leave.

Everything here is an exact name: what begins as a known variable does may be named after anything.
"""

from functools import cache

from tokenpeak.sensitive import LABEL, PLAIN, place_of
from tokenpeak.vllm.flags import flag_table


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LIBRARY_VARIABLES = _names(
    """
    CUDA_CACHE_DISABLE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
    NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE
    HIP_VISIBLE_DEVICES HIP_FORCE_DEV_KERNARG ROCR_VISIBLE_DEVICES HSA_NO_SCRATCH_RECLAIM
    NCCL_ALGO NCCL_BUFFSIZE NCCL_COMM_ID NCCL_CROSS_NIC NCCL_CUMEM_ENABLE NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS
    NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_TIMEOUT NCCL_LAUNCH_MODE NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS
    NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL NCCL_NET_PLUGIN NCCL_NTHREADS NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL
    NCCL_PROTO NCCL_RAS_ADDR NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME
    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF PYTORCH_TUNABLEOP_ENABLED
    PYTORCH_TUNABLEOP_TUNING TORCH_CUDA_ARCH_LIST TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_BLOCKING_WAIT
    TORCHDYNAMO_DISABLE TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_MAX_AUTOTUNE
    TRITON_CACHE_DIR TRITON_INTERPRET XLA_FLAGS FLASHINFER_CUDA_ARCH_LIST FLASHINFER_WORKSPACE_BASE
    OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_WAIT_POLICY KMP_AFFINITY KMP_BLOCKTIME KMP_TPAUSE MKL_NUM_THREADS
    HF_HUB_CACHE HF_HUB_DISABLE_TELEMETRY HF_HUB_ENABLE_HF_TRANSFER HF_HUB_OFFLINE SAFETENSORS_FAST_GPU
    TOKENIZERS_PARALLELISM TRANSFORMERS_OFFLINE TRANSFORMERS_VERBOSITY RAY_ADDRESS RAY_DEDUP_LOGS
    TOKENPEAK_SIM_ACCEPTANCE TOKENPEAK_SIM_DRIVER TOKENPEAK_SIM_FAULT TOKENPEAK_SIM_GPU TOKENPEAK_SIM_GPU_COUNT
    TOKENPEAK_SIM_LINKS TOKENPEAK_SIM_NOISE TOKENPEAK_SIM_POWER_LIMIT_W TOKENPEAK_SIM_SEED TOKENPEAK_SIM_SPEED
    TOKENPEAK_SIM_START_S TOKENPEAK_SIM_VERSION
    """
)
"""Variables of libraries that an engine loads, and of the simulated engine."""
FREE_VARIABLES = _names(
    """
    VLLM_BUILD_COMMIT VLLM_BUILD_PIPELINE VLLM_BUILD_URL VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS VLLM_IMAGE_TAG
    VLLM_LOGGING_PREFIX VLLM_LORA_RESOLVER_HF_REPO_LIST VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME VLLM_PLUGINS
    VLLM_PROCESS_NAME_PREFIX VLLM_RAY_EXTRA_ENV_VARS_TO_COPY VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY VLLM_USAGE_SOURCE
    """
)
"""Variables of vLLM that hold words of whoever runs it."""
JSON_KEYS = _names(
    """
    architectures attn_implementation backend cudagraph_mode custom_ops dtype kv_buffer_device kv_connector
    kv_connector_module_path kv_role method mode model model_type ops publisher quant_method rope_type splitting_ops
    torch_dtype type use_inductor
    """
)
"""Keys of the JSON of vLLM's flags whose values are vLLM's words, and names of models."""
MODULES = _names(
    "middleware worker_cls worker_extension_cls scheduler_cls logits_processors io_processor_plugin "
    "kv_connector_module_path model_class_overrides"
)
"""Flags and keys that name what an engine imports."""


def is_known_flag(name: str) -> bool:
    """Whether some release of vLLM has a flag of that name; of `--flag.key`, whether it has the key too."""
    flag, dot, key = _plain(name).partition(".")
    has_flag = any(each in flag_table().flags for each in (flag, flag.removeprefix("no_")))
    return has_flag and (not dot or is_known_key(key.rpartition(".")[2]))


def is_known_variable(name: str) -> bool:
    """Whether vLLM or a library of its reads a variable of that name, which holds no words of its user's."""
    return (name in flag_table().variables or name in LIBRARY_VARIABLES) and name not in FREE_VARIABLES


def is_known_key(key: str, value: str = "") -> bool:
    """Whether the text below a key of a flag's JSON says nothing of its author, or says it as a place does."""
    plain = _plain(key)
    return (
        plain in JSON_KEYS
        or plain in flag_table().flags
        or place_of(key) is not None
        or bool(value and (PLAIN.fullmatch(value) or LABEL.fullmatch(value) or value in _choices()))
    )


def names_module(name: str) -> bool:
    """Whether a flag or key of that name says what is imported."""
    return _plain(name).rpartition(".")[2] in MODULES


def is_module_of_vllm(value: str) -> bool:
    """Whether what is imported is a part of vLLM, or nothing."""
    return value.startswith("vllm.") or not value or PLAIN.fullmatch(value) is not None


@cache
def _choices() -> frozenset[object]:
    """What flags of vLLM may be: words of everybody's."""
    spans = (span for spans in flag_table().flags.values() for span in spans)
    return frozenset(choice for _, _, facts in spans for choice in facts.get("choices", ()))


def _plain(name: str) -> str:
    return name.strip("-").replace("-", "_")
