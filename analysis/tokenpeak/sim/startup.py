"""Start-up of the simulated engine: its log, how long each part takes, and where it stops when it cannot go on.

The lines are those of vLLM 0.32.0 as it runs, and of 0.8.5 where V0 sizes its KV cache.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.profile_run import graph_bytes
from tokenpeak.sim.settings import Release, Settings
from tokenpeak.sim.simulated_node import Faults, Meter, NodeState


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


LOAD_BYTES_PER_S = 2.0e9
"""Weights from a local NVMe disk, safetensors."""

_LOAD_MODEL = "vllm/v1/worker/gpu_model_runner.py:5120 in load_model"
_ALLOCATE_CACHE = "vllm/worker/cache_engine.py:92 in _allocate_kv_cache"


class EngineLog:
    """Lines on stdout with time, place in the source and process, each flushed at once."""

    def __init__(self, release: Release) -> None:
        pid = os.getpid()
        self._api = f"(APIServer pid={pid}) " if release.process_prefixes else ""
        self._core = f"(EngineCore pid={pid}) " if release.process_prefixes and release.v1 else self._api

    def api(self, place: str, message: str, level: str = "INFO") -> None:
        """A line of the API server; `place` is `file.py:line`."""
        self._write(self._api, place, message, level)

    def core(self, place: str, message: str, level: str = "INFO") -> None:
        """A line of the engine's own process."""
        self._write(self._core, place, message, level)

    def server(self, message: str) -> None:
        """A line of the HTTP server."""
        sys.stdout.write(f"INFO:     {message}\n")
        sys.stdout.flush()

    def failure(self, place: str, summary: str, error: str, frames: tuple[str, ...]) -> None:
        """A traceback in the engine's process, logged line by line as vLLM does when its start fails."""
        lines = [summary, "Traceback (most recent call last):", *(f"  File {frame}" for frame in frames)]
        for line in (*lines, *error.splitlines()):
            self.core(place, line, "ERROR")

    def traceback(self, frames: tuple[str, ...], error: str) -> None:
        """A traceback that ends the API server's process, on stderr."""
        lines = ["Traceback (most recent call last):", *(f"  File {frame}" for frame in frames), error]
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()

    def _write(self, prefix: str, place: str, message: str, level: str) -> None:
        stamp = datetime.now().astimezone().strftime("%m-%d %H:%M:%S")
        sys.stdout.write(f"{prefix}{level} {stamp} [{place}] {message}\n")
        sys.stdout.flush()


class StartError(Exception):
    """The engine does not start; the log says why."""


@dataclass(frozen=True, kw_only=True)
class StartTimes:
    """Seconds that each part of a start takes."""

    import_s: float
    load_s: float
    compile_s: float
    graphs_s: float


def start_times(settings: Settings, environ: Mapping[str, str] = os.environ) -> StartTimes:
    """How long the start takes: `TOKENPEAK_SIM_START_S` in all, else as modelled.

    Importing and distributing take 8 s and 2 s more per further GPU; weights come from a disk; without
    `--enforce-eager`, V1 compiles for 20 s, and each captured graph takes a third of a second.
    """
    engine = settings.deployment
    compiled = not engine.eager and not settings.devices.is_cpu
    modelled = {
        "import_s": 8.0 + 2.0 * (engine.tensor_parallel * engine.pipeline_parallel - 1),
        "load_s": max(0.02, engine.weight_bytes_per_gpu * engine.tensor_parallel / LOAD_BYTES_PER_S),
        "compile_s": 20.0 if compiled and settings.release.v1 else 0.0,
        "graphs_s": engine.graph_sizes / 3 if compiled else 0.0,
    }
    override = environ.get("TOKENPEAK_SIM_START_S")
    factor = max(0.0, float(override)) / sum(modelled.values()) if override else 1.0
    return StartTimes(**{part: seconds * factor for part, seconds in modelled.items()})


def attention_line(settings: Settings) -> str | None:
    """The line that names the attention backend; None where the engine writes none, or it is not played.

    Sources: logs of 0.7 to 0.19; 0.32.0 platforms/cuda.py 446 and 507, v1/attention/backends/flash_attn.py 453.
    """
    release, asked = settings.release, settings.arguments.given.get("attention_backend")
    if settings.devices.is_cpu or settings.devices.gpu.vendor != "nvidia":
        return None
    flash = settings.devices.compute_capability >= (8, 0)
    if asked:
        return f"Using AttentionBackendEnum.{asked} backend."
    if not release.v1:
        return f"Using {'Flash Attention' if flash else 'XFormers'} backend."
    if release.number < (0, 13, 0):
        return "Using Flash Attention backend on V1 engine." if flash else None
    backends = (
        ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"] if flash else ["TRITON_ATTN", "FLEX_ATTENTION"]
    )
    return f"Using {backends[0]} attention backend out of potential backends: {backends}."


class Start:
    """Goes through a start step by step. `wait` sleeps for the seconds it is given."""

    def __init__(
        self,
        settings: Settings,
        log: EngineLog,
        meter: Meter,
        state: NodeState | None,
        faults: Faults,
        *,
        wait: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._log = log
        self._meter = meter
        self._state = state
        self._faults = faults
        self._wait = wait

    def run(self) -> None:
        """Start. Raises StartError."""
        settings, log = self._settings, self._log
        log.api("api_utils.py:286", f"non-default args: {settings.arguments.given}")
        log.api("engine.py:1", "This is TokenPeak's simulated engine; nothing is computed.", "WARNING")
        if refusal := config_refusal(settings):
            frame = '"vllm/entrypoints/cli/main.py", line 90, in main'
            log.traceback((frame, _frame(refusal.place)), refusal.error)
            raise StartError
        times = start_times(settings)
        log.api("model.py:733", f"Resolved architecture of a {settings.model.model_type} model")
        log.api("model.py:2152", f"Using max model len {settings.max_model_len}")
        tokens = settings.deployment.max_num_batched_tokens
        # Logs of 0.32 lack this line where the number is the default of the configuration's class.
        if settings.memory.chunked_prefill and (tokens != 2048 or settings.release.number < (0, 32, 0)):
            log.api("scheduler.py:308", f"Chunked prefill is enabled with max_num_batched_tokens={tokens}.")
        self._wait(times.import_s)
        core = f"{'V1' if settings.release.v1 else 'V0'} LLM engine (v{settings.release.text})"
        shown = {
            "model": settings.arguments.model,
            "dtype": f"torch.{settings.deployment.dtype}",
            "max_seq_len": settings.max_model_len,
            "tensor_parallel_size": settings.deployment.tensor_parallel,
            "pipeline_parallel_size": settings.deployment.pipeline_parallel,
            "quantization": settings.arguments.quantization,
            "enforce_eager": settings.deployment.eager,
            "kv_cache_dtype": settings.deployment.kv_cache_dtype,
            "enable_prefix_caching": settings.memory.prefix_caching,
            "enable_chunked_prefill": settings.memory.chunked_prefill,
        }
        if settings.release.number >= (0, 12, 0):
            graphs = not settings.deployment.eager and not settings.devices.is_cpu
            mode = "FULL_AND_PIECEWISE: (2, 1)" if graphs else "NONE: 0"
            shown["compilation_config"] = f"{{'cudagraph_mode': <CUDAGraphMode.{mode}>}}"
        config = ", ".join(f"{name}={value}" for name, value in shown.items())
        log.core("core.py:133", f"Initializing a {core} with config: {config}")
        if line := attention_line(settings):
            log.core("cuda.py:507", line)
        while "hang_at_start" in self._faults:
            self._wait(3600.0)
        if "crash_at_start" in self._faults:
            log.core("core.py:1510", "Segmentation fault encountered", "ERROR")
            os.abort()
        self._load(times)
        self._cache(times)

    def _load(self, times: StartTimes) -> None:
        settings, log = self._settings, self._log
        free, weights_bytes = self._free(), settings.deployment.weight_bytes_per_gpu
        # V0 does not look at what others hold before it allocates.
        self._refuse(memory_refusal(settings, free) if settings.release.v1 else None)
        self._refuse(allocation_refusal(settings, weights_bytes, free, _LOAD_MODEL))
        log.core("gpu_model_runner.py:5095", f"Starting to load model {settings.arguments.model}...")
        self._meter.hold(int(weights_bytes))
        self._wait(times.load_s)
        if "oom_at_start" in self._faults:
            self._refuse(out_of_memory(settings, free, _LOAD_MODEL))
        log.core("default_loader.py:501", f"Loading weights took {times.load_s:.2f} seconds")
        taken = f"{weights_bytes / GIB:.4f} GiB memory and {times.load_s:.6f} seconds"
        log.core("gpu_model_runner.py:5149", f"Model loading took {taken}")

    def _cache(self, times: StartTimes) -> None:
        settings, log = self._settings, self._log
        self._wait(times.compile_s)
        if times.compile_s:
            log.core("monitor.py:34", f"torch.compile took {times.compile_s:.2f} s in total")
        left = settings.memory.kv_cache_bytes / GIB
        if settings.devices.is_cpu:
            log.core("cpu_worker.py:260", f"Explicitly set ({left:.1f}/{16.0:.2f}) GiB for KV cache on node 0.")
        elif settings.release.v1:
            log.core("gpu_worker.py:759", f"Available KV cache memory: {left:.2f} GiB")
        else:
            log.core("worker.py:287", f"the rest of the memory reserved for KV Cache is {left:.2f}GiB.")
        self._refuse(cache_refusal(settings))
        length = settings.max_model_len
        concurrency = f"Maximum concurrency for {length} tokens per request: {settings.kv_tokens / length:.2f}x"
        if settings.release.v1:
            device = "CPU" if settings.devices.is_cpu else "GPU"
            size = f"{device} KV cache size: {settings.kv_tokens:,} tokens"
            log.core("kv_cache_utils.py:2327", f"{size}, {concurrency}")
        else:
            log.core("executor_base.py:112", f"# cuda blocks: {settings.kv_blocks}, # CPU blocks: 0")
            log.core("executor_base.py:117", concurrency)
        self._refuse(allocation_refusal(settings, settings.vram_bytes, self._free(), _ALLOCATE_CACHE))
        self._meter.hold(settings.vram_bytes)
        self._wait(times.graphs_s)
        if times.graphs_s:
            took = f"{times.graphs_s:.0f} secs, took {graph_bytes(settings.deployment) / GIB:.2f} GiB"
            log.core("gpu_model_runner.py:6581", f"Graph capturing finished in {took}")
        seconds = times.compile_s + times.graphs_s
        log.core("core.py:402", f"init engine (profile, create kv cache, warmup model) took {seconds:.2f} s")

    def _free(self) -> float:
        """Bytes that no other process holds, on the fullest of the engine's GPUs."""
        total = self._settings.devices.gpu.usable_bytes
        if self._state is None:
            return total
        return total - max((self._state.vram_held(gpu) for gpu in self._settings.gpus), default=0)

    def _refuse(self, refusal: Refusal | None) -> None:
        """Fail in the engine's process: with its own traceback, and under V1 with the API server's after it."""
        if refusal is None:
            return
        frame = _frame(refusal.place)
        if not self._settings.release.v1:
            self._log.traceback(('"vllm/engine/llm_engine.py", line 273, in __init__', frame), refusal.error)
            raise StartError
        frames = ('"vllm/v1/engine/core.py", line 1480, in run_engine_core', frame)
        self._log.failure("core.py:1510", "EngineCore failed to start.", refusal.error, frames)
        self._log.traceback(
            ('"vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup',),
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore': 1}",
        )
        raise StartError


def _frame(place: str) -> str:
    file_and_line, _, function = place.partition(" in ")
    file, _, line = file_and_line.partition(":")
    return f'"{file}", line {line}, in {function}'


def sleep(seconds: float) -> None:
    """Wait; a signal that arrives meanwhile is handled and may end the process."""
    if seconds > 0:
        time.sleep(seconds)
