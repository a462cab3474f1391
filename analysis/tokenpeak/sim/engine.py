"""The simulated engine: a process that takes vLLM's command line and answers as vLLM does, paced by physics.

    python -m tokenpeak.sim.engine serve MODEL --host H --port P …      python -m tokenpeak.sim.engine --version

Environment: TOKENPEAK_SIM_GPU, TOKENPEAK_SIM_GPU_COUNT, TOKENPEAK_SIM_VERSION, TOKENPEAK_SIM_DIR,
TOKENPEAK_SIM_START_S, TOKENPEAK_SIM_NOISE (relative standard deviation of a step's time),
TOKENPEAK_SIM_SPEED (share of such a machine's usual speed, 1) and TOKENPEAK_SIM_FAULT (in devices.py).
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from zlib import crc32

import uvloop

from tokenpeak.errors import TokenpeakError
from tokenpeak.sim.api import Api
from tokenpeak.sim.engine_metrics import Counters
from tokenpeak.sim.http import HttpServer
from tokenpeak.sim.pace import Pace
from tokenpeak.sim.scheduler import BlockPool, Scheduler, SchedulerLimits
from tokenpeak.sim.settings import Settings, parse_serve, release_number, resolve
from tokenpeak.sim.simulated_node import Faults, Meter, NodeState, devices, faults
from tokenpeak.sim.startup import EngineLog, Start, StartError, sleep
from tokenpeak.vllm.flags import DEFAULT_RELEASE


class Stopped(BaseException):
    """SIGTERM or SIGINT while the engine starts."""


class SimulatedEngine:
    """One run of the process, from its settings to its exit status."""

    def __init__(self, settings: Settings, log: EngineLog, state: NodeState | None, played: Faults) -> None:
        self._settings = settings
        self._log = log
        self._faults = played
        self._state = state
        self._meter = Meter(state, settings.devices.gpu.tdp_w, settings.gpus)
        launch = state.next_launch() if state else 0
        seed = settings.arguments.seed or 0
        self._seed = crc32(f"0 {seed} {launch}".encode())
        self._answer_seed = crc32(f"0 {seed}".encode())

    def run(self) -> int:
        """Start, serve until a signal, and end; the exit status."""
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            listener = self._bind()
            Start(self._settings, self._log, self._meter, self._state, self._faults, wait=sleep).run()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(listener))
            return 0
        except StartError:
            return 1
        except Stopped:
            return 0
        finally:
            self._meter.leave()

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        if "ignore_sigterm" in self._faults and number == signal.SIGTERM:
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

    async def _serve(self, listener: socket.socket) -> None:
        settings, log = self._settings, self._log
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        counters = Counters(
            settings.release,
            settings.served_names[0],
            settings.max_model_len,
            speculative=settings.memory.draft_tokens > 0,
        )
        api = Api(settings, counters, self._faults, seed=self._answer_seed, crash=self._crash)
        blocks = settings.kv_blocks * settings.deployment.data_parallel
        scheduler = Scheduler(_limits(settings), BlockPool(blocks, caching=settings.memory.prefix_caching))
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
        )
        server = HttpServer(api.handle)
        for number in (signal.SIGTERM, signal.SIGINT):
            if not ("ignore_sigterm" in self._faults and number == signal.SIGTERM):
                loop.add_signal_handler(number, stopping.set)
        listener.listen(2048)
        listening = await loop.create_server(server.connection, sock=listener)
        host, port = listener.getsockname()[:2]
        log.api("entry.py:140", f"Starting vLLM server on http://{host}:{port}")
        log.server("Application startup complete.")
        self._meter.idle()
        await stopping.wait()
        log.api("launcher.py:254", "[shutdown] API server: shutdown triggered")
        listening.close()
        for connection in list(server.connections):
            connection.close()
        log.server("Application shutdown complete.")

    def _crash(self, error: str) -> None:
        """The engine's process dies of an error, and the server with it."""
        frame = ('"vllm/v1/engine/core.py", line 1496, in run_engine_core',)
        self._log.failure("core.py:1512", "EngineCore encountered a fatal error.", error, frame)
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        self._log.traceback(frame, f"vllm.v1.engine.exceptions.EngineDeadError: {message}")
        self._meter.leave()
        os._exit(1)


def _limits(settings: Settings) -> SchedulerLimits:
    return SchedulerLimits(
        max_num_seqs=settings.max_num_seqs * settings.deployment.data_parallel,
        max_num_batched_tokens=settings.deployment.max_num_batched_tokens * settings.deployment.data_parallel,
        block_size=settings.memory.block_size,
        chunked_prefill=settings.memory.chunked_prefill,
        prefill_first=not settings.release.v1 and not settings.memory.chunked_prefill,
        draft_tokens=settings.memory.draft_tokens,
        long_prefill_token_threshold=settings.arguments.long_prefill_token_threshold,
    )


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
        settings = resolve(parse_serve(words[1:], version), version, devices())
        folder = os.environ.get("TOKENPEAK_SIM_DIR")
        state = NodeState(Path(folder)) if folder else None
        return SimulatedEngine(settings, EngineLog(settings.release), state, faults()).run()
    except TokenpeakError as error:
        print(f"simulated engine: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
