"""Refusals of a simulated engine to start: for want of memory, or for settings that only the whole config shows wrong.

Each refusal is in vLLM's own words and names the file that raises it in 0.32.0. Of other configs that vLLM refuses, the
plan drops those that matter here: a simulated engine starts with them.
"""

from dataclasses import dataclass

from tokenpeak.predict.hardware import GIB
from tokenpeak.sim.settings import Settings


@dataclass(frozen=True)
class Refusal:
    """Why the engine does not start."""

    error: str
    """As the last line of the traceback: `ValueError: …`."""
    place: str
    """`path:line in function` of the frame that raises."""


def config_refusal(settings: Settings) -> Refusal | None:
    """The refusal of the API server, before any engine process begins."""
    allowed, length = settings.model.max_context, settings.max_model_len
    sequences, tokens = settings.max_num_seqs, settings.deployment.max_num_batched_tokens
    if length > allowed:
        return _invalid(
            "ModelConfig",
            f"User-specified max_model_len ({length}) is greater than the derived max_model_len "
            f"(max_position_embeddings={allowed} or model_max_length=None in model's config.json). To allow "
            "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        )
    if tokens < sequences:
        return _invalid(
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({sequences}).",
        )
    return None


def memory_refusal(settings: Settings, free_bytes: float) -> Refusal | None:
    """The refusal of a worker that looks at its GPU: somebody else holds the memory."""
    total = settings.devices.gpu.usable_bytes
    requested = total * settings.memory.gpu_memory_utilization
    if settings.devices.is_cpu or free_bytes >= requested:
        return None
    gib = f"({free_bytes / GIB:.2f}/{total / GIB:.2f} GiB)"
    return Refusal(
        f"ValueError: Free memory on device cuda:0 {gib} on startup is less than desired GPU memory utilization "
        f"({settings.memory.gpu_memory_utilization}, {requested / GIB:.2f} GiB). Decrease GPU memory utilization or "
        "reduce GPU memory used by other processes.",
        "vllm/v1/worker/utils.py:764 in request_memory",
    )


def allocation_refusal(settings: Settings, wanted_bytes: float, free_bytes: float, place: str) -> Refusal | None:
    """CUDA out of memory, where what is to be allocated is not free."""
    if settings.devices.is_cpu or wanted_bytes <= free_bytes:
        return None
    return out_of_memory(settings, free_bytes, place)


def out_of_memory(settings: Settings, free_bytes: float, place: str) -> Refusal:
    """Words of torch when a matrix more does not fit, `free_bytes` having been free at the start."""
    piece = 2 * settings.model.hidden * settings.model.intermediate / settings.deployment.tensor_parallel
    total, used = settings.devices.gpu.usable_bytes / GIB, max(0.0, free_bytes - piece / 2) / GIB
    return Refusal(
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {piece / 2**20:.2f} MiB. GPU 0 has a total "
        f"capacity of {total:.2f} GiB of which {piece / 2**21:.2f} MiB is free. Including non-PyTorch memory, this "
        f"process has {used:.2f} GiB memory in use.",
        place,
    )


def cache_refusal(settings: Settings) -> Refusal | None:
    """No memory, or too little, for the KV cache of one full sequence."""
    place = "vllm/v1/core/kv_cache_utils.py:1010 in _check_enough_kv_cache_memory"
    needed, left = settings.memory.sequence_bytes, settings.memory.kv_cache_bytes
    if left <= 0 or settings.kv_blocks <= 0:
        return Refusal(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine.",
            place,
        )
    if needed <= left:
        return None
    return Refusal(
        f"ValueError: To serve at least one request with the model's max seq len ({settings.max_model_len}), "
        f"({needed / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({left / GIB:.2f} GiB). Based on the available memory, the estimated maximum model length is "
        f"{settings.kv_tokens}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine.",
        place,
    )


def _invalid(config: str, message: str) -> Refusal:
    """A check in a configuration class, which pydantic wraps."""
    return Refusal(
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}\n"
        f"  Value error, {message} [type=value_error, input_value=ArgsKwargs((), {{...}}), input_type=ArgsKwargs]",
        f"vllm/engine/arg_utils.py:2540 in create_engine_config ({config})",
    )
