"""A simulated engine as a process over real HTTP."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from sim.forked import Forked, engine

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@dataclass
class RunningEngine:
    """One engine process, its address and its log."""

    process: Forked
    url: str
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def client(self) -> httpx.Client:
        """A client for this engine; without certificates to read it is made in a millisecond."""
        return httpx.Client(base_url=self.url, timeout=30, verify=False, trust_env=False)

    def get(self, path: str, **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **options)

    def post(self, path: str, body: dict[str, Any], **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **options)

    def wait_ready(self, deadline_s: float = 60.0) -> "RunningEngine":
        """Wait until /health answers; an engine that ends instead fails the test with its log."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log
            try:
                if self.get("/health").status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError(f"not ready after {deadline_s} s:\n{self.log}")

    def ended(self, timeout_s: float = 60.0) -> int:
        """Wait for the process's end; its exit status."""
        return self.process.wait(timeout=timeout_s)


StartEngine = Callable[..., RunningEngine]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def engines(folder: Path) -> Iterator[StartEngine]:
    """Yields what starts engines, each with its log in `folder`; ends those that still run."""
    started: list[RunningEngine] = []

    def start(*flags: str, model: str = MODEL, port: int | None = None, **variables: str) -> RunningEngine:
        port = port or free_port()
        log_path = folder / f"engine-{len(started)}.log"
        settings = {"gpu": "A100 80GB", "start_s": "0", **variables}
        named = {name if name.isupper() else f"TOKENPEAK_SIM_{name.upper()}": text for name, text in settings.items()}
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("TOKENPEAK_SIM_")}
        argv = ("serve", model, "--host", "127.0.0.1", "--port", str(port), *flags)
        process = Forked(engine.main, argv, {**inherited, **named}, log_path)
        started.append(RunningEngine(process, f"http://127.0.0.1:{port}", log_path))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
