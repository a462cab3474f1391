"""A real HAProxy in front of the rig's nodes, and clients that send through it for as long as a block runs."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tokenpeak.node.machine import clock

GATEWAY = "10.77.0.1"
"""This machine's address on the nodes' bridge."""
CONFIG = """global
    stats socket ipv4@{gateway}:{runtime} level admin
    stats timeout 10s
defaults
    mode http
    timeout connect 3s
    timeout client 120s
    timeout server 120s
    timeout queue 60s
    option httpchk GET /health
    retries 0
frontend in
    bind {gateway}:{port}
    default_backend llm
backend llm
    balance leastconn
{servers}
"""


@dataclass
class Balancer:
    """A running HAProxy."""

    port: int
    runtime_port: int
    backend: str = "llm"

    @property
    def url(self) -> str:
        """Where clients send."""
        return f"http://{GATEWAY}:{self.port}"

    @property
    def runtime(self) -> str:
        """What `tokenpeak_drain.haproxy.socket` is."""
        return f"{GATEWAY}:{self.runtime_port}"

    def ask(self, command: str) -> str:
        """What its runtime socket answers."""
        with socket.create_connection((GATEWAY, self.runtime_port), 5) as asking:
            asking.sendall(f"{command}\n".encode())
            raw = b""
            while chunk := asking.recv(65536):
                raw += chunk
        return raw.decode()

    def status(self, server: str) -> str:
        """`UP`, `DRAIN` and so on, of a server of its backend."""
        rows = (line.split(",") for line in self.ask("show stat -1 4 -1").splitlines())
        return next(row[17] for row in rows if row[:2] == [self.backend, server])

    def is_in(self, server: str) -> bool:
        """Whether the server gets requests: nobody took it out, and its health check finds it up."""
        return self.status(server).startswith("UP")


@contextmanager
def balancer(folder: Path, port: int, servers: Mapping[str, str]) -> Iterator[Balancer]:
    """A HAProxy in front of these servers, by name and address, for as long as the block runs."""
    lines = [f"    server {name} {address} check inter 500ms fall 2 rise 1" for name, address in servers.items()]
    config = folder / f"haproxy-{port}.cfg"
    config.write_text(CONFIG.format(gateway=GATEWAY, port=port, runtime=port + 1, servers="\n".join(lines)))
    with (folder / f"haproxy-{port}.log").open("ab") as log:
        started = subprocess.Popen(["haproxy", "-db", "-f", str(config)], stdout=log, stderr=log)
    made = Balancer(port=port, runtime_port=port + 1)
    try:
        assert clock.wait_until(lambda: _is_open(port), 15), (folder / f"haproxy-{port}.log").read_text()
        yield made
    finally:
        os.kill(started.pid, signal.SIGKILL)
        started.wait()


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((GATEWAY, port)) == 0


@dataclass
class Clients:
    """Clients that send completions without a pause, each streaming its answer; what failed, with its time."""

    url: str
    model: str
    count: int = 4
    tokens: int = 32
    pause_s: float = 0.05
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def sending(self) -> Iterator["Clients"]:
        """Send for as long as the block runs, then await the last answers."""
        threads = [threading.Thread(target=self._send, args=(number,)) for number in range(self.count)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join(120)

    def _send(self, number: int) -> None:
        place = 0
        while not self._is_over.is_set():
            place += 1
            problem = self._one(f"{number} {place} " + "word " * 60)
            with self._lock:
                self.answered += problem is None
                if problem is not None:
                    self.failed.append(f"{time.strftime('%H:%M:%S')} {problem}")
            time.sleep(self.pause_s)

    def _one(self, prompt: str) -> str | None:
        """None when a whole stream came; otherwise what came instead."""
        options = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0}
        body = json.dumps({"model": self.model, "prompt": prompt, "max_tokens": self.tokens, **options}).encode()
        request = urllib.request.Request(f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                said = reply.read().decode()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return repr(error)
        if "[DONE]" not in said or f'"completion_tokens":{self.tokens}' not in said.replace(" ", ""):
            return f"a stream that was cut: {said[-200:]!r}"
        return None


def why_no_haproxy(path: Sequence[str] = ("/usr/sbin/haproxy", "/usr/bin/haproxy")) -> str | None:
    """Why no HAProxy can be started here; None when one can."""
    return None if any(Path(each).exists() for each in path) else "haproxy is not installed (Debian: haproxy)"
