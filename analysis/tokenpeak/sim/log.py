"""The log as vLLM writes it: time, the place in the source, and from 0.10 on the process, before each message."""

import os
import sys
from datetime import datetime

from tokenpeak.sim.release import Release

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
