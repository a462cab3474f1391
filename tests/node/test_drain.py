"""Drain: a node that leaves its load balancer before production is stopped, with real HAProxy and nginx."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.free_ports import free_port
from tests.node.conftest import STANDIN, Node

from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import drain

HAPROXY = """
global
    stats socket {socket} mode 600 level admin
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    option httpchk GET /health
    retries 0
frontend in
    bind 127.0.0.1:{port}
    default_backend llm
backend llm
    server mine 127.0.0.1:{mine} check inter 200ms fall 2 rise 1
    server other 127.0.0.1:{other} check inter 200ms fall 2 rise 1
"""
NGINX = """
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
daemon off;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    upstream llm {{ include {folder}/servers.conf; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://llm; proxy_next_upstream off; }}
    }}
}}
"""


@dataclass
class Clients:
    """Clients that send completions through a balancer without a pause; what failed."""

    url: str
    threads: int = 4
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send for as long as the block runs, and await the last answers."""
        threads = [threading.Thread(target=self._send) for _ in range(self.threads)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join(30)

    def await_answers(self) -> None:
        """Wait until each client has had some more."""
        enough = self.answered + 3 * self.threads
        assert clock.wait_until(lambda: self.answered >= enough, 60)

    def _send(self) -> None:
        body = json.dumps({"model": "prod", "prompt": "The", "max_tokens": 1}).encode()
        while not self._is_over.is_set():
            asked = urllib.request.Request(f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(asked, timeout=30) as reply:
                    self.answered += json.load(reply)["model"] == "prod"
            except (OSError, urllib.error.HTTPError) as error:
                self.failed.append(f"{time.time():.2f} {error}")
            time.sleep(0.01)


@contextmanager
def running(*argv: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A server for as long as the block runs, once its port is open."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        assert clock.wait_until(lambda: is_open(port), 60), argv
        try:
            yield started
        finally:
            started.send_signal(signal.SIGTERM)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def other_server(*options: str) -> Iterator[int]:
    """Another server of the balancer, which goes on serving; its port."""
    port = free_port()
    with running(sys.executable, str(STANDIN), "serve", "prod", "--port", str(port), *options, port=port):
        yield port


@dataclass
class Balanced:
    """A node behind a real balancer at `url`, with another server beside it."""

    node: Node
    url: str
    drain: dict[str, Any]


@pytest.fixture
def haproxy(node: Node, tmp_path: Path) -> Iterator[Balanced]:
    """The node and another server behind a real HAProxy."""
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not installed (Debian: haproxy)")
    port, path = free_port(), tmp_path / "socket"
    mine = int(node.production("--takes-s", "0.3")["url"].rpartition(":")[2])
    with other_server("--takes-s", "0.3") as other:
        config = tmp_path / "haproxy.cfg"
        config.write_text(HAPROXY.format(socket=path, port=port, mine=mine, other=other))
        with running("haproxy", "-db", "-f", str(config), port=port):
            declared = {"haproxy": {"socket": str(path), "servers": ["llm/mine"]}, "wait": {"most_s": 20}}
            node.declare(drain=declared)
            yield Balanced(node=node, url=f"http://127.0.0.1:{port}", drain=declared)


@pytest.fixture
def nginx(node: Node, tmp_path: Path) -> Iterator[Balanced]:
    """The node and another server behind a real nginx."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed (Debian: nginx-light)")
    port = free_port()
    mine = node.production("--takes-s", "0.3")["url"].removeprefix("http://")
    with other_server("--takes-s", "0.3") as other:
        (tmp_path / "servers.conf").write_text(f"  server {mine} weight=2;\n  server 127.0.0.1:{other};\n")
        config = tmp_path / "nginx.conf"
        config.write_text(NGINX.format(folder=tmp_path, port=port))
        argv = ["nginx", "-c", str(config)]
        with running(*argv, port=port):
            reload = {"file": str(tmp_path / "servers.conf"), "server": mine, "reload": [*argv, "-s", "reload"]}
            node.declare(drain={"nginx": reload})
            yield Balanced(node=node, url=f"http://127.0.0.1:{port}", drain=reload)


def status_of(balanced: Balanced) -> str:
    """What HAProxy says of the node's server."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(balanced.drain["haproxy"]["socket"])
        asking.sendall(b"show stat -1 4 -1\n")
        raw = b""
        while chunk := asking.recv(65536):
            raw += chunk
    said = next(line.split(",")[17] for line in raw.decode().splitlines() if line.startswith("llm,mine,"))
    # Behind the status is how many checks of how many speak for another one: `DRAIN 1/2`.
    return said.partition(" ")[0]


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["haproxy", pytest.param("nginx", marks=pytest.mark.e2e)])
def test_no_request_fails_in_a_trial(kind: str, request: pytest.FixtureRequest) -> None:
    """Clients of the balancer lose no request while production is stopped for a trial and brought back."""
    balanced: Balanced = request.getfixturevalue(kind)
    node = balanced.node
    node.run("produce")
    clients = Clients(balanced.url)
    if kind == "haproxy":
        assert clock.wait_until(lambda: status_of(balanced) == "UP", 60)

    with clients.sending():
        clients.await_answers()
        launched = node.run("launch", node.launch_request())
        during = clients.answered
        clients.await_answers()
        finished = node.run("finish", node.finish_request())
        clients.await_answers()

    assert launched["ready"]
    assert "draining" in [phase["name"] for phase in launched["phases"]]
    assert finished["restoration"]["restored"], finished["restoration"]
    assert "rejoining" in [phase["name"] for phase in finished["phases"]]
    assert clients.answered > during > 0
    assert [] == clients.failed


@pytest.mark.integration
def test_guard_brings_the_node_back_into_its_balancer(haproxy: Balanced) -> None:
    """A controller that dies leaves the node out of its balancer; the guard puts it back once production answers."""
    node = haproxy.node
    node.run("produce")
    assert clock.wait_until(lambda: status_of(haproxy) == "UP", 60)

    node.run("launch", node.launch_request())
    out = status_of(haproxy)
    status = node.run("status")
    node.lapse()

    assert out in ("DRAIN", "DOWN")
    assert ["llm/mine"] == status["drained"]
    assert clock.wait_until(lambda: status_of(haproxy) == "UP", 60)


def test_server_that_an_administrator_took_out(haproxy: Balanced) -> None:
    """What was out before the trial stays out after it."""
    node = haproxy.node
    node.run("produce")
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(haproxy.drain["haproxy"]["socket"])
        asking.sendall(b"set server llm/mine state maint\n")
        asking.recv(100)

    node.run("launch", node.launch_request())
    finished = node.run("finish", node.finish_request())

    assert finished["restoration"]["restored"]
    assert "MAINT" == status_of(haproxy)


@pytest.mark.integration
def test_last_server_is_not_taken_out(haproxy: Balanced) -> None:
    """Where no other server is up, the trial does not begin, and production is as it was and in its balancer."""
    node = haproxy.node
    node.declare(drain={**haproxy.drain, "wait": {"most_s": 2}})
    node.run("produce")
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(haproxy.drain["haproxy"]["socket"])
        asking.sendall(b"set server llm/other state maint\n")
        asking.recv(100)
    assert clock.wait_until(lambda: status_of(haproxy) == "UP", 60)

    refused = node.run("launch", node.launch_request())

    assert "0 others are up there" in refused["error"]["text"]
    assert "UP" == status_of(haproxy)
    assert node.read("record.json") is None


@pytest.mark.e2e
def test_requests_that_do_not_end(haproxy: Balanced) -> None:
    """Requests that go on beyond the declared time keep production from being stopped; the node returns at once."""
    node = haproxy.node
    node.production("--takes-s", "8")
    port = node.declaration["production"]["url"].rpartition(":")[2]
    node.declare(drain={"before": ["true"], "after": ["true"], "wait": {"most_s": 1}})
    node.run("produce")
    clients = Clients(f"http://127.0.0.1:{port}", threads=1)

    with clients.sending():
        time.sleep(0.5)
        refused = node.run("launch", node.launch_request())

    assert "did not end (1 by its metrics) within 1 s" in refused["error"]["text"]
    assert [] == clients.failed


def test_commands_and_seconds(node: Node, tmp_path: Path) -> None:
    """`before` runs while production serves, `after` once it answers again; `seconds` is waited in between."""
    production = node.production()
    said = tmp_path / "said"
    ask = (
        "import sys,urllib.request as u\ntry: up = u.urlopen(sys.argv[1] + '/health', timeout=1).status == 200\n"
        "except OSError: up = False\nopen(sys.argv[2], 'a').write(sys.argv[3] + str(up) + ' ')"
    )
    argv = [sys.executable, "-c", ask, production["url"], str(said)]
    node.declare(drain={"before": [*argv, "before"], "after": [*argv, "after"], "wait": {"seconds": 1.5}})
    node.run("produce")

    launched = node.run("launch", node.launch_request())
    node.run("finish", node.finish_request())
    spans = {phase["name"]: phase["duration_s"] for phase in launched["phases"]}

    assert "beforeTrue afterTrue " == said.read_text()
    assert 1.5 <= spans["draining"] < 5


def test_balancer_that_does_not_answer_is_said_by_the_probe(haproxy: Balanced, tmp_path: Path) -> None:
    """The probe says before anything is stopped that the node could not leave its balancer."""
    node = haproxy.node
    node.run("produce")
    good = node.run("probe")["problems"]
    node.declare(drain={"haproxy": {"socket": str(tmp_path / "none"), "servers": ["llm/mine"]}})
    silent = node.run("probe")["problems"]
    node.declare(drain={"haproxy": {**haproxy.drain["haproxy"], "servers": ["llm/nobody"]}})
    unknown = node.run("probe")["problems"]

    assert [] == [problem for problem in good if "drain" in problem or "HAProxy" in problem]
    assert any("runtime socket" in problem for problem in silent)
    assert any("HAProxy has no server llm/nobody" in problem for problem in unknown)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, "names no balancer"),
        ({"haproxy": {"servers": ["a/b"]}}, "tokenpeak_drain.haproxy has no 'socket'"),
        ({"before": ["true"]}, "tokenpeak_drain.after is None"),
        ({"before": ["true"], "after": ["true"], "wait": {"seconds": 1, "metric": "x"}}, "tokenpeak_drain.wait is"),
        ({"kubernetes": {"service": "llm", "label": "a=b"}}, "for production with manager kubernetes"),
    ],
)
def test_declaration_that_makes_no_sense(tmp_path: Path, declared: dict[str, Any], words: str) -> None:
    """A mistake in tokenpeak_drain is said with its key."""
    production = {"manager": "command", "url": "http://127.0.0.1:1", "start": ["true"], "stop": ["true"]}
    state = State.make(tmp_path / "state")

    with pytest.raises(ScriptError, match=words.replace("(", r"\(")):
        if problem := drain.Drain(declared, production, state).problem():
            raise ScriptError("drain", problem)
