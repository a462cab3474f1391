"""What a survey reads from command lines, and which servers of this machine it takes for production."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpeak.node.machine import clock
from tokenpeak.node.machine.sockets import listening_at
from tokenpeak.node.probe.survey import Machine, is_demonstration, is_engine, model_of, port_of, survey


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("/opt/vllm/bin/python /opt/vllm/bin/vllm serve org/model --port 8000", "org/model"),
        ("python3 -u /opt/vllm/bin/vllm serve /models/x", "/models/x"),
        ("/opt/vllm/bin/vllm serve --model org/model", "org/model"),
        ("python -m vllm.entrypoints.openai.api_server --model=org/model", "org/model"),
        ("python3 -u -m vllm.entrypoints.openai.api_server --port 8000", None),
    ],
)
def test_server_of_a_model(line: str, model: str | None) -> None:
    """A command line of vLLM's server is known, with the model that it loads."""
    assert is_engine(line.split())
    assert model == model_of(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "sh -c /opt/vllm/bin/vllm serve org/model",
        "sudo -u vllm /opt/vllm/bin/vllm serve org/model",
        "docker run vllm/vllm-openai serve org/model",
        "/opt/vllm/bin/vllm bench serve",
        "vim vllm serve",
        "python train.py --framework vllm serve",
    ],
)
def test_others_are_no_servers(line: str) -> None:
    """Who starts a server, and what merely names one, is none."""
    assert not is_engine(line.split())


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("vllm serve org/model", 8000),
        ("vllm serve org/model --port 8001", 8001),
        ("vllm serve org/model --port=8002", 8002),
        ("vllm serve org/model --port $PORT", None),
        ("vllm serve org/model --port 99999", None),
    ],
)
def test_port_of_a_server(line: str, port: int | None) -> None:
    """The port that a command line has its server listen at; vLLM's own where it says nothing."""
    assert port == port_of(line.split())


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("python -m tokenpeak.sim.engine serve org/model --host 127.156.1.2 --port 18000", True),
        ("python -m tokenpeak.sim.engine serve org/model --host 127.0.0.1 --port 8000", False),
        ("python -m tokenpeak.sim.engine serve org/model --port 8000", False),
        ("vllm serve org/model --host 127.156.1.2", False),
    ],
)
def test_demonstration(line: str, is_one: bool) -> None:
    """A simulated node's server has a loopback address of its own; any other counts as production may."""
    assert is_one == is_demonstration(line.split())


SERVER = """import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[-1]))):
    time.sleep(600)
"""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[dict[int, int]]:
    """Port → pid of two programs that are called as vLLM's server is, and listen."""
    (tmp_path / "vllm").write_text(SERVER)
    argv = [sys.executable, str(tmp_path / "vllm"), "serve", "org/model", "--port"]
    started = {port: subprocess.Popen([*argv, str(port)]) for port in (free_port(), free_port())}
    try:
        for port in started:
            assert clock.wait_until(lambda port=port: bool(listening_at(port)), 20, poll_s=0.05)
        yield {port: process.pid for port, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def free_port() -> int:
    """A port of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def found(port: int) -> dict[int | None, tuple[int, ...]]:
    """Pid → ports of what a look at the machine finds behind a port."""
    servers, _ = Machine.look().behind(port, listening_at(port))
    return {one.pid: one.ports for one in servers}


def test_server_at_the_port(two: dict[int, int]) -> None:
    """Of several servers the one that listens at the port is production; where none does, all are, with their ports."""
    port, pid = next(iter(two.items()))

    assert {pid: (port,)} == found(port)
    assert {pid: (port,) for port, pid in two.items()}.items() <= found(free_port()).items()


def test_servers_of_others(two: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that this user cannot see into, and that does not listen at the port, is none of this user's."""
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)

    assert not {*two.values()} & {*found(free_port())}


def test_nothing_answers(two: dict[int, int]) -> None:
    """It is known whether something listens at the port."""
    assert survey(next(iter(two))).is_answering
    assert not survey(free_port()).is_answering
