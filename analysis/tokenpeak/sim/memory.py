"""Refusals at start: what vLLM does not start with, in its own words and order.

Each check names the file that raises in vLLM 0.32.0; the texts of older releases differ where noted.
"""

from dataclasses import dataclass, replace

from tokenpeak.predict.config_json import METHODS
from tokenpeak.predict.deployment import activation_peak_bytes, graph_bytes, kv_cache_bytes
from tokenpeak.predict.hardware import GIB
from tokenpeak.sim.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Bytes on each GPU, and the KV cache that they leave for one replica of the engine."""

    weights_bytes: float
    activations_bytes: float
    graphs_bytes: float
    kv_cache_bytes: float
    """Left for the KV cache; below zero when nothing is."""
    blocks: int
    block_size: int
    full_sequence_bytes: float
    """KV cache of one sequence of max_model_len tokens."""

    @property
    def tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.blocks * self.block_size

    @property
    def vram_bytes(self) -> int:
        """All that the process takes on a GPU once it serves."""
        return int(self.weights_bytes + self.activations_bytes + self.graphs_bytes + max(0.0, self.kv_cache_bytes))


def capacity(settings: Settings) -> Capacity:
    """The memory of the engine that `settings` describe."""
    deployment, arguments = settings.deployment, settings.arguments
    given = arguments.kv_cache_memory_bytes or (settings.cpu_kv_cache_bytes if settings.devices.is_cpu else None)
    left = kv_cache_bytes(deployment, settings.gpu_memory_utilization, kv_cache_memory_bytes=given)
    per_token = deployment.kv_bytes_per_token_per_gpu
    full = settings.model.kv_bytes_of_sequence(settings.max_model_len, deployment.kv_dtype, settings.tensor_parallel)
    blocks = arguments.num_gpu_blocks_override or max(0, int(left // (per_token * settings.block_size)))
    return Capacity(
        weights_bytes=deployment.weight_bytes_per_gpu,
        activations_bytes=activation_peak_bytes(deployment),
        graphs_bytes=graph_bytes(deployment),
        kv_cache_bytes=left,
        blocks=blocks,
        block_size=settings.block_size,
        full_sequence_bytes=full / settings.pipeline_parallel,
    )


def shrink_context(settings: Settings) -> Settings:
    """The settings with `--max-model-len auto` (-1) resolved: the model's context, or what the KV cache holds."""
    if settings.arguments.max_model_len != -1:
        return settings
    return replace(settings, max_model_len=max(1, min(settings.max_model_len, capacity(settings).tokens)))


_MIN_CAPABILITY = {
    "fp8": 75,
    "awq": 75,
    "awq_marlin": 75,
    "gptq": 60,
    "gptq_marlin": 75,
    "marlin": 80,
    "bitsandbytes": 70,
    "compressed-tensors": 70,
    "experts_int8": 80,
    "fbgemm_fp8": 80,
    "gguf": 60,
    "modelopt": 89,
    "modelopt_fp4": 75,
    "mxfp4": 80,
}
"""`get_min_capability` of each method in vllm/model_executor/layers/quantization/."""


@dataclass(frozen=True, kw_only=True)
class SettingRefusal:
    """Why the engine does not start: the exception's text, and where it is raised."""

    error: str
    """As the last line of the traceback: `ValueError: …`."""
    place: str
    """`path:line in function` of the frame that raises."""


def config_refusal(settings: Settings) -> SettingRefusal | None:
    """What the API server refuses before any engine process begins."""
    model, arguments = settings.model, settings.arguments
    allowed = settings.model.max_context
    if settings.max_model_len_given and settings.max_model_len > allowed:
        warning = (
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution. If the model uses relative position "
            "encoding (RoPE), positions exceeding derived_max_model_len lead to nan. If the model uses absolute "
            "position encoding, positions exceeding derived_max_model_len will cause a CUDA array out-of-bounds error."
        )
        return _invalid(
            "ModelConfig",
            f"User-specified max_model_len ({settings.max_model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={allowed} or model_max_length=None in model's config.json). To allow "
            f"overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. {warning}",
        )
    if settings.dtype == "bfloat16" and settings.devices.compute_capability < (8, 0):
        major, minor = settings.devices.compute_capability
        return SettingRefusal(
            error="ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
            f"Your {settings.devices.gpu.name} GPU has compute capability {major}.{minor}. You can use float16 "
            "instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half.",
            place="vllm/platforms/cuda.py:649 in check_if_supports_dtype",
        )
    if model.heads % settings.tensor_parallel:
        return _invalid(
            "VllmConfig",
            f"Total number of attention heads ({model.heads}) must be divisible by tensor parallel size "
            f"({settings.tensor_parallel}).",
        )
    if settings.max_num_batched_tokens < settings.max_model_len and not settings.chunked_prefill:
        return _invalid(
            "SchedulerConfig",
            f"max_num_batched_tokens ({settings.max_num_batched_tokens}) is smaller than max_model_len "
            f"({settings.max_model_len}). This effectively limits the maximum sequence length to "
            "max_num_batched_tokens and makes vLLM reject longer sequences. Please increase max_num_batched_tokens "
            "or decrease max_model_len.",
        )
    if settings.max_num_batched_tokens < settings.max_num_seqs:
        return _invalid(
            "SchedulerConfig",
            f"max_num_batched_tokens ({settings.max_num_batched_tokens}) must be greater than or equal to "
            f"max_num_seqs ({settings.max_num_seqs}).",
        )
    name = settings.quantization
    if name is not None and name not in METHODS:
        return _invalid("ModelConfig", f"Unknown quantization method: {name}. Must be one of {sorted(METHODS)}.")
    if name is not None and not settings.devices.is_cpu:
        major, minor = settings.devices.compute_capability
        if major * 10 + minor < _MIN_CAPABILITY.get(name, 0):
            return SettingRefusal(
                error=f"ValueError: The quantization method {name} is not supported for the current GPU. Minimum "
                f"capability: {_MIN_CAPABILITY[name]}. Current capability: {major * 10 + minor}.",
                place="vllm/config/vllm.py:901 in _get_quantization_config",
            )
    if arguments.gpu_memory_utilization is not None and not 0 < arguments.gpu_memory_utilization <= 1:
        return _invalid(
            "CacheConfig",
            "gpu_memory_utilization\n  Input should be less than or equal to 1 [type=less_than_equal, "
            f"input_value={arguments.gpu_memory_utilization}, input_type=float]",
        )
    return None


def world_refusal(settings: Settings) -> SettingRefusal | None:
    """What fails when the workers are started: more GPUs asked for than there are."""
    wanted = settings.tensor_parallel * settings.pipeline_parallel * settings.data_parallel
    if settings.devices.is_cpu or wanted <= len(settings.devices.indexes):
        return None
    return SettingRefusal(
        error=f"ValueError: World size ({wanted}) is larger than the number of available GPUs "
        f"({len(settings.devices.indexes)}) in this node. If this is intentional and you are using: - ray, set "
        "'--distributed-executor-backend ray'. - multiple nodes, set '--nnodes' appropriately.",
        place="vllm/config/parallel.py:1170 in __post_init__",
    )


def memory_refusal(settings: Settings, free_bytes: float) -> SettingRefusal | None:
    """What a worker refuses when it looks at its GPU: somebody else holds the memory."""
    total = settings.devices.gpu.usable_bytes
    requested = total * settings.gpu_memory_utilization
    if settings.devices.is_cpu or free_bytes >= requested:
        return None
    gib = f"({free_bytes / GIB:.2f}/{total / GIB:.2f} GiB)"
    return SettingRefusal(
        error=f"ValueError: Free memory on device cuda:0 {gib} on startup is less than desired GPU memory utilization "
        f"({settings.gpu_memory_utilization}, {requested / GIB:.2f} GiB). Decrease GPU memory utilization or reduce "
        "GPU memory used by other processes.",
        place="vllm/v1/worker/utils.py:764 in request_memory",
    )


def allocation_refusal(settings: Settings, wanted_bytes: float, free_bytes: float, place: str) -> SettingRefusal | None:
    """CUDA out of memory, where what is to be allocated is not free."""
    if settings.devices.is_cpu or wanted_bytes <= free_bytes:
        return None
    return out_of_memory(settings, free_bytes, place)


def out_of_memory(settings: Settings, free_bytes: float, place: str) -> SettingRefusal:
    """Words of torch when a matrix more does not fit, `free_bytes` having been free at the start."""
    piece = 2 * settings.model.hidden * settings.model.intermediate / settings.tensor_parallel
    mib, left = piece / 2**20, piece / 2**21
    total, used = settings.devices.gpu.usable_bytes / GIB, max(0.0, free_bytes - piece / 2) / GIB
    return SettingRefusal(
        error=f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {mib:.2f} MiB. GPU 0 has a total "
        f"capacity of {total:.2f} GiB of which {left:.2f} MiB is free. Including non-PyTorch memory, this process has "
        f"{used:.2f} GiB memory in use. Of the allocated memory {used * 0.98:.2f} GiB is allocated by PyTorch, and "
        f"{left:.2f} MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        place=place,
    )


def cache_refusal(settings: Settings, found: Capacity) -> SettingRefusal | None:
    """No memory, or too little, for the KV cache of one full sequence."""
    place = "vllm/v1/core/kv_cache_utils.py:1010 in _check_enough_kv_cache_memory"
    if found.kv_cache_bytes <= 0 or found.blocks <= 0:
        return SettingRefusal(
            error="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine.",
            place=place,
        )
    if found.full_sequence_bytes <= found.kv_cache_bytes:
        return None
    longest = found.blocks * found.block_size
    if not settings.release.v1:
        return SettingRefusal(
            error=f"ValueError: The model's max seq len ({settings.max_model_len}) is larger than the maximum number "
            f"of tokens that can be stored in KV cache ({longest}). Try increasing `gpu_memory_utilization` or "
            "decreasing `max_model_len` when initializing the engine.",
            place="vllm/worker/worker.py:525 in raise_if_cache_size_invalid",
        )
    return SettingRefusal(
        error=f"ValueError: To serve at least one request with the model's max seq len ({settings.max_model_len}), "
        f"({found.full_sequence_bytes / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache "
        f"memory ({found.kv_cache_bytes / GIB:.2f} GiB). Based on the available memory, the estimated maximum model "
        f"length is {longest}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine.",
        place=place,
    )


def _invalid(config: str, message: str) -> SettingRefusal:
    """A check in a configuration class, which pydantic wraps."""
    return SettingRefusal(
        error=f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}\n"
        f"  Value error, {message} [type=value_error, input_value=ArgsKwargs((), {{...}}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
        place=f"vllm/engine/arg_utils.py:2540 in create_engine_config ({config})",
    )
