"""The simulated engine: a process that takes vLLM's command line and answers as vLLM does, paced by physics.

    python -m tokenpeak.sim.engine serve MODEL --host H --port P …      python -m tokenpeak.sim.engine --version

Environment: TOKENPEAK_SIM_GPU, TOKENPEAK_SIM_GPU_COUNT, TOKENPEAK_SIM_VERSION, TOKENPEAK_SIM_DIR,
TOKENPEAK_SIM_START_S, TOKENPEAK_SIM_SEED, TOKENPEAK_SIM_NOISE (relative standard deviation of a step's time),
TOKENPEAK_SIM_SPEED (share of such a machine's usual speed, 1), TOKENPEAK_SIM_POWER_LIMIT_W (device.py),
TOKENPEAK_SIM_ACCEPTANCE (share of drafted tokens accepted, 0.7), TOKENPEAK_SIM_FAULT (faults.py).
"""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType
from zlib import crc32

from tokenpeak.errors import TokenpeakError
from tokenpeak.sim.api import Api
from tokenpeak.sim.arguments import parse_serve
from tokenpeak.sim.boards import Holder, Meter, NodeState, process_started
from tokenpeak.sim.devices import CUDA_ERROR, Faults, devices, faults
from tokenpeak.sim.engine_metrics import Counters
from tokenpeak.sim.http import HttpRequest, HttpServer
from tokenpeak.sim.memory import Capacity, shrink_context
from tokenpeak.sim.pace import Pace
from tokenpeak.sim.scheduler import Scheduler, SchedulerLimits
from tokenpeak.sim.sequence import BlockPool
from tokenpeak.sim.settings import Settings, release_number, resolve
from tokenpeak.sim.startup import EngineLog, Start, StartError, sleep
from tokenpeak.vllm.flags import DEFAULT_RELEASE

STATS_EVERY_S = 10.0
_PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
            500: "Internal Server Error"}  # fmt: skip


class Stopped(BaseException):
    """SIGTERM or SIGINT while the engine starts."""


class SimulatedEngine:
    """One run of the process, from its settings to its exit status."""

    def __init__(self, settings: Settings, log: EngineLog, state: NodeState | None, played: Faults) -> None:
        self._settings = settings
        self._log = log
        self._faults = played
        self._state = state
        self._meter = Meter(state, settings, played.slow_release or 0.0, played.throttle_after_s)
        launch = state.next_launch() if state else 0
        seed = int(os.environ.get("TOKENPEAK_SIM_SEED", "0"))
        self._seed = crc32(f"{seed} {settings.arguments.seed or 0} {launch}".encode())
        self._answer_seed = crc32(f"{seed} {settings.arguments.seed or 0}".encode())
        self._stopping: asyncio.Event | None = None
        self._status = 0

    def run(self) -> int:
        """Start, serve until a signal, and end; the exit status."""
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            listener = self._bind()
            found = Start(self._settings, self._log, self._meter, self._state, self._faults, wait=sleep).run()
            if self._faults.orphan_worker:
                self._leave_an_orphan(found)
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                return runner.run(self._serve(listener, found))
        except StartError as failed:
            return failed.status
        except Stopped:
            return 0
        finally:
            self._meter.leave()

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        if self._faults.ignore_sigterm and number == signal.SIGTERM:
            return
        raise Stopped

    def _bind(self) -> socket.socket:
        """Take the port before the start, as vLLM does, so that a second engine fails at once."""
        host = self._settings.arguments.host or "0.0.0.0"  # noqa: S104 - vLLM's own default
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, self._settings.arguments.port))
        except OSError as error:
            frame = '"vllm/entrypoints/launchers/api_server/entry.py", line 66, in create_server_socket'
            self._log.traceback((frame,), f"OSError: {error}")
            raise StartError from error
        return listener

    async def _serve(self, listener: socket.socket, found: Capacity) -> int:
        settings, log = self._settings, self._log
        loop = asyncio.get_running_loop()
        self._stopping = stopping = asyncio.Event()
        counters = Counters(
            settings.release,
            settings.served_names[0],
            settings.max_model_len,
            speculative=settings.draft_tokens > 0,
        )
        counters.cache_config = _cache_config(settings, found)
        api = Api(settings, counters, self._faults, seed=self._answer_seed, crash=self._crash)
        scheduler = Scheduler(
            _limits(settings), BlockPool(found.blocks * settings.data_parallel, caching=settings.prefix_caching)
        )
        api.pace = Pace(
            settings,
            scheduler,
            counters,
            self._meter,
            flush=api.flush,
            warn=lambda text: log.core("pace.py:1", text, "WARNING"),
            seed=self._seed,
            noise=float(os.environ.get("TOKENPEAK_SIM_NOISE", "0")),
            speed=float(os.environ.get("TOKENPEAK_SIM_SPEED", "1")),
            acceptance=float(os.environ.get("TOKENPEAK_SIM_ACCEPTANCE", "0.7")),
        )
        server = HttpServer(api.handle, self._access)
        for number in (signal.SIGTERM, signal.SIGINT):
            if not (self._faults.ignore_sigterm and number == signal.SIGTERM):
                loop.add_signal_handler(number, stopping.set)
        listener.listen(2048)
        listening = await loop.create_server(server.connection, sock=listener)
        host, port = settings.arguments.host or "0.0.0.0", settings.arguments.port  # noqa: S104
        log.api(
            "entry.py:140",
            f"Starting vLLM {'API ' if settings.release.names_api_server else ''}server on http://{host}:{port}",
        )
        sys.stdout.write(f"INFO:     Started server process [{os.getpid()}]\n")
        sys.stdout.write("INFO:     Waiting for application startup.\nINFO:     Application startup complete.\n")
        sys.stdout.flush()
        self._meter.idle()
        stats = asyncio.create_task(self._log_stats(counters)) if not settings.arguments.disable_log_stats else None
        if self._faults.crash_after_s is not None:
            loop.call_later(self._faults.crash_after_s, self._crash, CUDA_ERROR)
        await stopping.wait()
        if stats is not None:
            stats.cancel()
        log.api("launcher.py:254", "[shutdown] API server: shutdown triggered")
        listening.close()
        for connection in list(server.connections):
            connection.close()
        log.api("launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")
        sys.stdout.write("INFO:     Shutting down\nINFO:     Application shutdown complete.\n")
        sys.stdout.flush()
        return self._status

    def _access(self, request: HttpRequest, status: int) -> None:
        if not self._settings.arguments.disable_uvicorn_access_log:
            phrase = _PHRASES.get(status, "")
            self._log.access(f'{request.client} - "{request.method} {request.path} HTTP/1.1" {status} {phrase}')

    def _crash(self, error: str) -> None:
        """The engine's process dies of an error, and the server with it."""
        frame = ('"vllm/v1/engine/core.py", line 1496, in run_engine_core',)
        self._log.failure("core.py:1512", "EngineCore encountered a fatal error.", error, frame)
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        self._log.traceback(frame, f"vllm.v1.engine.exceptions.EngineDeadError: {message}")
        self._meter.leave()
        os._exit(1)

    def _leave_an_orphan(self, found: Capacity) -> None:
        """A worker in its own session that goes on holding the memory when the engine has gone."""
        if os.fork():
            return
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._state is not None:
            self._state.write(
                Holder(
                    pid=os.getpid(),
                    process_started=process_started(os.getpid()) or "",
                    name="VLLM::Worker_TP0",
                    gpus=self._settings.gpus,
                    vram_bytes=found.vram_bytes,
                    written_at_unix_s=time.time(),
                )
            )
        while True:
            signal.pause()

    async def _log_stats(self, counters: Counters) -> None:
        """Every ten seconds with work: throughput, queues, KV cache usage."""
        prompt, generated, was_idle = 0, 0, True
        while True:
            await asyncio.sleep(STATS_EVERY_S)
            prompt_s = (counters.prompt_tokens - prompt) / STATS_EVERY_S
            generated_s = (counters.generation_tokens - generated) / STATS_EVERY_S
            prompt, generated = counters.prompt_tokens, counters.generation_tokens
            idle = not prompt_s and not generated_s
            if idle and was_idle:
                continue
            was_idle = idle
            hits = 100 * counters.prefix_hits / counters.prefix_queries if counters.prefix_queries else 0.0
            engine = "Engine 000: " if self._settings.release.v1 else ""
            self._log.api(
                "loggers.py:271",
                f"{engine}Avg prompt throughput: {prompt_s:.1f} tokens/s, Avg generation throughput: {generated_s:.1f} "
                f"tokens/s, Running: {counters.running} reqs, Waiting: {counters.waiting} reqs, "
                f"{self._settings.device_name} KV cache usage: {100 * counters.kv_usage:.1f}%, "
                f"Prefix cache hit rate: {hits:.1f}%",
            )


def _limits(settings: Settings) -> SchedulerLimits:
    return SchedulerLimits(
        max_num_seqs=settings.max_num_seqs * settings.data_parallel,
        max_num_batched_tokens=settings.max_num_batched_tokens * settings.data_parallel,
        block_size=settings.block_size,
        chunked_prefill=settings.chunked_prefill,
        prefill_first=not settings.release.v1 and not settings.chunked_prefill,
        draft_tokens=settings.draft_tokens,
        lookahead_tokens=settings.scheduler_steps - 1,
        long_prefill_token_threshold=settings.arguments.long_prefill_token_threshold,
    )


def _cache_config(settings: Settings, found: Capacity) -> dict[str, str]:
    """The labels of vllm:cache_config_info that are not constant."""
    labels = {
        "block_size": str(found.block_size),
        "cache_dtype": settings.kv_cache_dtype,
        "enable_prefix_caching": str(settings.prefix_caching),
        "gpu_memory_utilization": str(settings.gpu_memory_utilization),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(found.blocks),
        "num_gpu_blocks_override": str(settings.arguments.num_gpu_blocks_override),
        "sliding_window": str(settings.model.sliding_window),
    }
    if settings.release.number >= (0, 32, 0):
        labels["kv_cache_size_tokens"] = str(found.tokens)
        labels["kv_cache_max_concurrency"] = str(found.tokens / settings.max_model_len)
    return labels


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """The loop of uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


def main(argv: list[str] | None = None) -> int:
    """The command line; the exit status."""
    words = sys.argv[1:] if argv is None else argv
    try:
        version = os.environ.get("TOKENPEAK_SIM_VERSION", DEFAULT_RELEASE)
        release_number(version)
        if words and words[0] in ("--version", "-v"):
            print(version)
            return 0
        if not words or words[0] != "serve":
            print("The simulated engine knows: serve MODEL [flags], --version.", file=sys.stderr)
            return 2
        settings = shrink_context(resolve(parse_serve(words[1:], version), version, devices()))
        folder = os.environ.get("TOKENPEAK_SIM_DIR")
        state = NodeState(Path(folder)) if folder else None
        return SimulatedEngine(settings, EngineLog(settings.release), state, faults()).run()
    except TokenpeakError as error:
        print(f"simulated engine: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
