"""Start-up of the simulated engine: what it logs, how long each part takes, and where it stops when it cannot go on.

Sources of the lines: vllm 0.32.0 as it runs, vllm 0.8.5 and 0.7.3 by their source.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tokenpeak.predict.hardware import GIB
from tokenpeak.sim.boards import Meter, NodeState
from tokenpeak.sim.devices import Faults
from tokenpeak.sim.memory import (
    Capacity,
    SettingRefusal,
    allocation_refusal,
    cache_refusal,
    capacity,
    config_refusal,
    memory_refusal,
    out_of_memory,
    world_refusal,
)
from tokenpeak.sim.settings import Release, Settings

_V0_PLACES = {
    "core.py:133": "llm_engine.py:241",
    "core.py:402": "llm_engine.py:437",
    "default_loader.py:501": "loader.py:458",
    "gpu_model_runner.py:5095": "model_runner.py:1108",
    "gpu_model_runner.py:5149": "model_runner.py:1140",
    "gpu_model_runner.py:6581": "model_runner.py:1592",
}
"""Where the V0 engine of 0.8.5 says what V1 of 0.32 says elsewhere."""


class EngineLog:
    """Lines on stdout, each flushed at once, as a supervisor's file shows them."""

    def __init__(self, release: Release) -> None:
        self._release = release
        pid = os.getpid()
        self._api = f"(APIServer pid={pid}) " if release.process_prefixes else ""
        self._core = f"({release.core_name} pid={pid}) " if release.process_prefixes and release.v1 else self._api

    def api(self, place: str, message: str, level: str = "INFO") -> None:
        """A line of the API server; `place` is `file.py:line`."""
        self._write(self._api, place, message, level)

    def core(self, place: str, message: str, level: str = "INFO") -> None:
        """A line of the engine's own process."""
        self._write(self._core, place if self._release.v1 else _V0_PLACES.get(place, place), message, level)

    def access(self, line: str) -> None:
        """A line of the HTTP server."""
        sys.stdout.write(f"INFO:     {line}\n")
        sys.stdout.flush()

    def failure(self, place: str, summary: str, error: str, frames: tuple[str, ...]) -> None:
        """A traceback in the engine's process, logged line by line as vLLM does when its start fails."""
        self.core(place, summary, "ERROR")
        self.core(place, "Traceback (most recent call last):", "ERROR")
        for frame in frames:
            self.core(place, f"  File {frame}", "ERROR")
        for line in error.splitlines():
            self.core(place, line, "ERROR")

    def traceback(self, frames: tuple[str, ...], error: str) -> None:
        """A traceback that ends the API server's process, on stderr."""
        lines = ["Traceback (most recent call last):", *(f"  File {frame}" for frame in frames), error]
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()

    def _write(self, prefix: str, place: str, message: str, level: str) -> None:
        stamp = datetime.now().astimezone().strftime("%m-%d %H:%M:%S")
        for line in message.splitlines() or [""]:
            sys.stdout.write(f"{prefix}{level} {stamp} [{place}] {line}\n")
        sys.stdout.flush()


LOAD_BYTES_PER_S = 2.0e9
"""Weights from a local NVMe disk, safetensors."""


_LOAD_MODEL = "vllm/v1/worker/gpu_model_runner.py:5120 in load_model"
_ALLOCATE_CACHE = "vllm/worker/cache_engine.py:92 in _allocate_kv_cache"


class StartError(Exception):
    """The engine does not start; the log says why. `status` is the process's exit status."""

    def __init__(self, status: int = 1) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


@dataclass(frozen=True, kw_only=True)
class StartTimes:
    """Seconds that each part of a start takes."""

    import_s: float
    load_s: float
    compile_s: float
    graphs_s: float

    @property
    def total_s(self) -> float:
        """From the first line to the first answer."""
        return self.import_s + self.load_s + self.compile_s + self.graphs_s

    def scaled(self, total_s: float) -> "StartTimes":
        """The same shares of another total."""
        factor = total_s / self.total_s
        return StartTimes(
            import_s=self.import_s * factor,
            load_s=self.load_s * factor,
            compile_s=self.compile_s * factor,
            graphs_s=self.graphs_s * factor,
        )


def start_times(settings: Settings, weights_bytes: float, environ: Mapping[str, str] = os.environ) -> StartTimes:
    """How long the start takes: `TOKENPEAK_SIM_START_S` in all, else as modelled.

    Importing and distributing take 8 s and 2 s more per further GPU; weights come from a disk; without
    `--enforce-eager`, V1 compiles for 20 s, and each captured graph takes a third of a second.
    """
    compiled = not settings.eager and not settings.devices.is_cpu
    modelled = StartTimes(
        import_s=8.0 + 2.0 * (settings.tensor_parallel * settings.pipeline_parallel - 1),
        load_s=max(0.02, weights_bytes * settings.tensor_parallel / LOAD_BYTES_PER_S),
        compile_s=20.0 if compiled and settings.release.v1 else 0.0,
        graphs_s=settings.deployment.graph_sizes / 3 if compiled else 0.0,
    )
    override = environ.get("TOKENPEAK_SIM_START_S")
    return modelled.scaled(max(0.0, float(override))) if override else modelled


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

    def run(self) -> Capacity:
        """Start; the KV cache that there is when it went well. Raises StartError."""
        settings, log = self._settings, self._log
        self._banner()
        refused = config_refusal(settings)
        if refused:
            self._refuse_config(refused)
        found = capacity(settings)
        times = start_times(settings, found.weights_bytes)
        log.api("model.py:733", f"Resolved architecture: {_architecture(settings.model.model_type)}")
        log.api("model.py:2152", f"Using max model len {settings.max_model_len}")
        if settings.chunked_prefill:
            tokens = settings.max_num_batched_tokens
            log.api("scheduler.py:307", f"Chunked prefill is enabled with max_num_batched_tokens={tokens}.")
        self._wait(times.import_s)
        kind = "V1" if settings.release.v1 else "V0"
        log.core("core.py:133", f"Initializing a {kind} LLM engine (v{settings.release.text}) with config: "
                 f"model='{settings.arguments.model}', dtype=torch.{settings.dtype}, "
                 f"max_seq_len={settings.max_model_len}, tensor_parallel_size={settings.tensor_parallel}, "
                 f"pipeline_parallel_size={settings.pipeline_parallel}, quantization={settings.quantization}, "
                 f"enforce_eager={settings.eager}, kv_cache_dtype={settings.kv_cache_dtype}, ")  # fmt: skip
        if self._faults.hang_at_start:
            self._hang()
        if self._faults.crash_at_start:
            log.core("core.py:1510", "Segmentation fault encountered", "ERROR")
            os.abort()
        refused = world_refusal(settings)
        if refused:
            self._refuse_core(refused)
        self._load(found, times)
        self._cache(found, times)
        return found

    def _load(self, found: Capacity, times: StartTimes) -> None:
        settings, log = self._settings, self._log
        free = self._free()
        refused = memory_refusal(settings, free) if settings.release.v1 else None
        refused = refused or allocation_refusal(settings, found.weights_bytes, free, _LOAD_MODEL)
        if refused:
            self._refuse_core(refused)
        log.core("gpu_model_runner.py:5095", f"Starting to load model {settings.arguments.model}...")
        self._meter.hold(int(found.weights_bytes))
        self._wait(times.load_s)
        if self._faults.oom_at_start:
            self._refuse_core(out_of_memory(settings, free, _LOAD_MODEL))
        gib, number = found.weights_bytes / GIB, settings.release.number
        place = "gpu_model_runner.py:5149"
        if number < (0, 8, 0):
            log.core(place, f"Loading model weights took {gib:.4f} GB")
            return
        log.core("default_loader.py:501", f"Loading weights took {times.load_s:.2f} seconds")
        taken = f"{gib:.4f} GiB" if number < (0, 15, 0) else f"{gib:.2f} GiB"
        memory = "" if number < (0, 11, 0) else " memory"
        log.core(place, f"Model loading took {taken}{memory} and {times.load_s:.6f} seconds")

    def _cache(self, found: Capacity, times: StartTimes) -> None:
        settings, log = self._settings, self._log
        self._wait(times.compile_s)
        if times.compile_s:
            verb = "took" if settings.release.number >= (0, 21, 0) else "takes"
            log.core("monitor.py:34", f"torch.compile {verb} {times.compile_s:.2f} s in total")
        left = found.kv_cache_bytes / GIB
        if settings.devices.is_cpu:
            log.core("cpu_worker.py:260", f"Explicitly set ({left:.1f}/{16.0:.2f}) GiB for KV cache on node 0.")
        elif settings.release.v1:
            log.core("gpu_worker.py:759", f"Available KV cache memory: {left:.2f} GiB")
        else:
            log.core("worker.py:283", f"the current vLLM instance can use total_gpu_memory "
                     f"({settings.devices.gpu.usable_bytes / GIB:.2f}GiB) x gpu_memory_utilization "
                     f"({settings.gpu_memory_utilization:.2f}) = "
                     f"{settings.devices.gpu.usable_bytes / GIB * settings.gpu_memory_utilization:.2f}GiB")  # fmt: skip
            log.core("worker.py:287", f"model weights take {found.weights_bytes / GIB:.2f}GiB; non_torch_memory takes "
                     f"0.20GiB; PyTorch activation peak memory takes {found.activations_bytes / GIB:.2f}GiB; the rest "
                     f"of the memory reserved for KV Cache is {left:.2f}GiB.")  # fmt: skip
        refused = cache_refusal(settings, found)
        if refused:
            self._refuse_core(refused)
        self._capacity_lines(found)
        # V0 does not look at what others hold before it allocates.
        refused = allocation_refusal(settings, found.vram_bytes, self._free(), _ALLOCATE_CACHE)
        if refused:
            self._refuse_core(refused)
        self._meter.hold(found.vram_bytes)
        self._wait(times.graphs_s)
        if times.graphs_s:
            took = f"{times.graphs_s:.0f} secs, took {found.graphs_bytes / GIB:.2f} GiB"
            log.core("gpu_model_runner.py:6581", f"Graph capturing finished in {took}")
        seconds = times.compile_s + times.graphs_s
        what = "profile, create kv cache, warmup model"
        new = settings.release.number >= (0, 21, 0)
        compiled = f" (compilation: {times.compile_s:.2f} s)" if new and times.compile_s else ""
        log.core("core.py:402", f"init engine ({what}) took {seconds:.2f} {'s' if new else 'seconds'}{compiled}")

    def _capacity_lines(self, found: Capacity) -> None:
        settings, log = self._settings, self._log
        concurrency = found.tokens / settings.max_model_len
        length = settings.max_model_len
        if not settings.release.v1:
            cpu_blocks = int(4 * GIB // (found.kv_cache_bytes / found.blocks))
            log.core("executor_base.py:112", f"# cuda blocks: {found.blocks}, # CPU blocks: {cpu_blocks}")
            line = f"Maximum concurrency for {length} tokens per request: {concurrency:.2f}x"
            log.core("executor_base.py:117", line)
        elif settings.release.one_kv_line:
            log.core("kv_cache_utils.py:2327", f"{settings.device_name} KV cache size: {found.tokens:,} tokens, "
                     f"Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x")  # fmt: skip
        else:
            log.core("kv_cache_utils.py:864", f"{settings.device_name} KV cache size: {found.tokens:,} tokens")
            line = f"Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x"
            log.core("kv_cache_utils.py:868", line)

    def _banner(self) -> None:
        settings, log = self._settings, self._log
        if settings.release.banner:
            for line in (
                "",
                "       █     █     █▄   ▄█",
                f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {settings.release.text}",
                f"  █▄█▀ █     █     █     █  model   {settings.arguments.model}",
                "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
                "",
            ):
                log.api("api_utils.py:347", line)
            log.api("api_utils.py:286", f"non-default args: {settings.arguments.given}")
        else:
            log.api("api_server.py:1043", f"vLLM API server version {settings.release.text}")
            log.api("api_server.py:1044", f"args: {settings.arguments.given}")
        log.api("engine.py:1", "This is TokenPeak's simulated engine; nothing is computed.", "WARNING")

    def _free(self) -> float:
        """Bytes that no other process holds, on the fullest of the engine's GPUs."""
        total = self._settings.devices.gpu.usable_bytes
        if self._state is None:
            return total
        return total - max((self._state.vram_held(gpu) for gpu in self._settings.gpus), default=0)

    def _refuse_config(self, refused: SettingRefusal) -> None:
        self._log.traceback(('"vllm/entrypoints/cli/main.py", line 90, in main', _frame(refused.place)), refused.error)
        raise StartError

    def _refuse_core(self, refused: SettingRefusal) -> None:
        """What fails in the engine's process: its own traceback, and under V1 the API server's after it."""
        release = self._settings.release
        if not release.v1:
            self._log.traceback(
                ('"vllm/engine/llm_engine.py", line 273, in __init__', _frame(refused.place)), refused.error
            )
            raise StartError
        frames = ('"vllm/v1/engine/core.py", line 1480, in run_engine_core', _frame(refused.place))
        self._log.failure("core.py:1510", "EngineCore failed to start.", refused.error, frames)
        status = {release.core_name: 1}
        self._log.traceback(
            ('"vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup',),
            f"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {status}",
        )
        raise StartError

    def _hang(self) -> None:
        while True:
            self._wait(3600.0)


def _frame(place: str) -> str:
    file_and_line, _, function = place.partition(" in ")
    file, _, line = file_and_line.partition(":")
    return f'"{file}", line {line}, in {function}'


def _architecture(model_type: str) -> str:
    known = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral", "gemma2": "Gemma2"}
    return f"{known.get(model_type, model_type.title().replace('_', ''))}ForCausalLM"


def sleep(seconds: float) -> None:
    """Wait; a signal that arrives meanwhile is handled and may end the process."""
    if seconds > 0:
        time.sleep(seconds)
