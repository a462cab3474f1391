"""Whoever answers for a load balancer sends a byte now and then, or what is no answer.

The limit was one of each byte: production that was to come back waited behind its balancer without end, and a count
that is no number ended the way back in a traceback. A whole answer has one limit, and no balancer keeps
production away.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import haproxy
from tokenpeak.node.production.drain import Drain
from tokenpeak.node.production.managers import make_manager

PRODUCTION = {"manager": "command", "start": ["true"], "stop": ["true"]}
STATES = "# be_name srv_name srv_admin_state srv_op_state\nllm me 0 2\n"


@contextmanager
def answering(answer: bytes, pause_s: float = 0.0, times: int = 1) -> Iterator[str]:
    """A port where each connection gets this answer so many times, with a pause after each."""
    server, is_over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            try:
                connection = server.accept()[0]
            except OSError:
                return
            with connection:
                connection.recv(1 << 10)
                for _ in range(times):
                    if is_over.wait(pause_s):
                        return
                    try:
                        connection.sendall(answer)
                    except OSError:
                        break

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        is_over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def balancer(where: str, tmp_path: Path) -> haproxy.HaproxyBalancer:
    """It, as the inventory declares it."""
    state = State.make(tmp_path / "state")
    return haproxy.HaproxyBalancer({"socket": where, "servers": ["llm/me"]}, make_manager(PRODUCTION, state))


def test_byte_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole answer has the limit; whoever gives the node back goes on."""
    monkeypatch.setattr(haproxy, "SOCKET_TIMEOUT_S", 0.1)
    state = State.make(tmp_path / "state")
    with answering(b"a", pause_s=0.02, times=100) as where:
        declared = {"haproxy": {"socket": where, "servers": ["llm/me"]}, "wait": {"most_s": 1}}
        began = time.monotonic()
        with pytest.raises(ScriptError, match="does not answer"):
            balancer(where, tmp_path).joined()
        Drain(declared, PRODUCTION, state).leave_at_once(["llm/me"])

    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("answer", "verb"),
    [
        ("# pxname,svname,scur,qcur\nllm,me,many,0\n", "is_idle"),
        ("# pxname,svname\nllm,me\n", "is_idle"),
        ("# svname,scur,qcur\nme,0,0\n", "is_idle"),
        (f"# pxname,svname,scur,qcur\n{'x' * 200_000},me,0,0\n", "is_idle"),
        (STATES.replace(" srv_op_state", ""), "is_back"),
        (STATES.replace("# be_name", "# of"), "is_back"),
        (STATES.replace("llm me 0 2", "llm me"), "is_back"),
    ],
    ids=["text", "no counts", "no backend", "long", "no state", "no name", "short line"],
)
def test_what_is_no_answer(answer: str, verb: str, tmp_path: Path) -> None:
    """It is said, as any other refusal of a balancer is."""
    with answering(answer.encode()) as where, pytest.raises(ScriptError, match="HAProxy's `show"):
        getattr(balancer(where, tmp_path), verb)(["llm/me"])


def test_whatever_a_balancer_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Production is put back all the same."""

    def raises(*_: Any) -> None:
        raise KeyError("scur")

    monkeypatch.setattr(haproxy.HaproxyBalancer, "leave", raises)
    declared = {"haproxy": {"socket": "/s", "servers": ["llm/me"]}}

    Drain(declared, PRODUCTION, State.make(tmp_path / "state")).leave_at_once(["llm/me"])
