"""Somebody keeps production away by what he answers, holds or sends.

Whoever must give the node back does so: no balancer's answer, listener or lease whose numbers nobody writes keeps
production down, no trial takes over an apply, and nobody has production started that an administrator stopped.
"""

import ctypes
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from types import SimpleNamespace
from typing import Any

import pytest
from tests.attacks.conftest import needs_root
from tests.node.conftest import APPLY_HOLDER, Node
from tests.node.test_broken_state import answers
from tests.node.test_change import Applied

from tokenpeak.node.guard import guard, lease
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, program
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.production import balancers, managers, production
from tokenpeak.node.production.drain import Drain
from tokenpeak.node.production.manager import Manager
from tokenpeak.node.production.managers import make_manager

DECLARED = {"manager": "command", "start": ["true"], "stop": ["true"]}


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


def balancer(where: str, tmp_path: Path) -> balancers.HaproxyBalancer:
    """It, as the inventory declares it."""
    state = State.make(tmp_path / "state")
    return balancers.HaproxyBalancer({"socket": where, "servers": ["llm/me"]}, make_manager(DECLARED, state))


def test_byte_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole answer has the limit; whoever gives the node back goes on."""
    monkeypatch.setattr(balancers, "SOCKET_TIMEOUT_S", 0.1)
    state = State.make(tmp_path / "state")
    with answering(b"a", pause_s=0.02, times=100) as where:
        declared = {"haproxy": {"socket": where, "servers": ["llm/me"]}, "wait": {"most_s": 1}}
        began = time.monotonic()
        with pytest.raises(ScriptError, match="does not answer"):
            balancer(where, tmp_path).joined()
        Drain(declared, DECLARED, state).leave_at_once(["llm/me"])

    assert time.monotonic() - began < 1.5


def test_whatever_a_balancer_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Production is put back all the same."""

    def raises(*_: Any) -> None:
        raise KeyError("scur")

    monkeypatch.setattr(balancers.HaproxyBalancer, "leave", raises)
    declared = {"haproxy": {"socket": "/s", "servers": ["llm/me"]}}

    Drain(declared, DECLARED, State.make(tmp_path / "state")).leave_at_once(["llm/me"])


NAME, OWN, OTHER = "production.test", "127.0.0.1", "127.0.0.2"
NOBODY = 65534
LIBC = ctypes.CDLL(None)
resolve = socket.getaddrinfo


class Handler(BaseHTTPRequestHandler):
    """Answers as production would."""

    def do_GET(self) -> None:
        """Whatever is asked."""
        body = json.dumps({"data": [{"id": "m"}], "model": "m", "choices": [{"text": "!"}]}).encode()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """The same."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Server(TCPServer):
    """One whose sockets are those of a user, to the kernel."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], user: int) -> None:
        self._user = user
        with self._as_user():
            super().__init__(address, Handler)

    def get_request(self) -> tuple[socket.socket, object]:
        """The next connection."""
        with self._as_user():
            return super().get_request()

    @contextmanager
    def _as_user(self) -> Iterator[None]:
        LIBC.setfsuid(self._user)
        try:
            yield
        finally:
            LIBC.setfsuid(0)


class Servers:
    """What answers at addresses of one port."""

    def __init__(self) -> None:
        self.servers: list[TCPServer] = []
        with closing(socket.create_server((OWN, 0))) as free:
            self.port = int(free.getsockname()[1])

    def listen(self, address: str, user: int = 0) -> None:
        """Answer there, by a socket of that user's; OSError where somebody does already."""
        self.servers.append(Server((address, self.port), user))
        threading.Thread(target=self.servers[-1].serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    """Production's port, free; its name leads to another address and then to its own."""
    made = Servers()

    class Kept(Manager):
        """Production that this process is; it knows each process of its own."""

        def is_running(self) -> bool:
            return any(server.server_address[0] == OWN for server in made.servers)

        def members(self) -> IsMember | None:
            return lambda _: False

        def stop(self) -> None:
            """It has ended."""

        def start(self, recorded: Json) -> None:
            made.listen(OWN)

    def two(host: str, *options: object, **more: object) -> list[tuple[object, ...]]:
        names = (OTHER, OWN) if host == NAME else (host,)
        return [found for name in names for found in resolve(name, *options, **more)]  # type: ignore[arg-type]

    monkeypatch.setitem(managers.MANAGERS, "kept", Kept)
    monkeypatch.setattr(socket, "getaddrinfo", two)
    monkeypatch.setattr(production, "STOPPED_WITHIN_S", 0.1)
    monkeypatch.setattr(production, "_START_PAUSE_S", 0.0)
    yield made
    for server in made.servers:
        server.shutdown()
        server.server_close()


def recorded(servers: Servers, host: str = NAME, user: int = 0) -> Json:
    """Production as it was before the trial, listening as that user."""
    declared = {"manager": "kept", "url": f"http://{host}:{servers.port}"}
    was = {"running": True, "url": declared["url"], "model": "m", "unit": None, "manager": "kept", "definition": {}}
    return {**was, "declared": declared, "answered_by": {"by": "user", "uid": user, "program": program(os.getpid())}}


PHASES = SimpleNamespace(mark=lambda _: None)


@needs_root
def test_stranger_at_another_address(servers: Servers, tmp_path: Path) -> None:
    """Production is stopped, started and answers, and the message names the stranger."""
    servers.listen(OTHER, NOBODY)
    was, state = recorded(servers), State(tmp_path)

    production.stop(was, state)
    wrong = production.bring_back(was, state, 5.0, PHASES)  # type: ignore[arg-type]

    assert wrong is None, wrong
    assert servers.servers[-1].server_address[0] == OWN
    assert f"of user {NOBODY}" in production.strangers(was, state)


@needs_root
def test_stranger_at_its_own_address(servers: Servers, tmp_path: Path) -> None:
    """Its start is tried, whatever comes of it: a stranger may leave at any time."""
    servers.listen(OTHER, NOBODY)
    was, state = recorded(servers, OTHER), State(tmp_path)

    wrong = production.bring_back(was, state, 0.1, PHASES)  # type: ignore[arg-type]

    assert servers.servers[-1].server_address[0] == OWN
    assert wrong is not None
    assert f"of user {NOBODY}" in wrong.text


@needs_root
@pytest.mark.parametrize("user", [0, NOBODY])
def test_production_that_was_started_by_hand(servers: Servers, tmp_path: Path, user: int) -> None:
    """None is started beside what root, or the user whose socket production had, runs there."""
    servers.listen(OTHER, user)
    was, state = recorded(servers, user=user), State(tmp_path)

    wrong = production.bring_back(was, state, 0.1, PHASES)  # type: ignore[arg-type]

    assert wrong is not None
    assert f"yet {was['url']} answers" in wrong.text
    assert [server.server_address[0] for server in servers.servers] == [OTHER]
    with pytest.raises(ScriptError, match="still answers"):
        production.stop(was, state)


SERVED = {"running": True, "model": "prod"}


@pytest.fixture
def waiting(node: Node) -> Applied:
    """An apply that waits to be confirmed."""
    node.production()
    assert node.run("produce")["ready"]
    applied = Applied(node)
    assert node.run("change", applied.node.change_request("--say", "new"))["changed"]
    return applied


def test_launch_takes_over_no_apply(waiting: Applied) -> None:
    """Its deadline, its lease and production stay as they are."""
    node = waiting.node
    before = node.read("record.json"), node.read("lease.json")

    answer = node.run("launch", node.launch_request(holder=APPLY_HOLDER, trial_id="a-1", trial_deadline_s=80_000))

    assert "locked" == answer["error"]["code"], answer
    assert "apply a-1" in answer["error"]["text"]
    assert before == (node.read("record.json"), node.read("lease.json"))
    assert waiting.answers()
    assert waiting.node.confirm()["confirmed"]


def stopped_by_an_administrator(node: Node) -> None:
    node.serve()
    node.stop_production()


def test_restore_starts_nothing_that_the_sweep_never_had(node: Node) -> None:
    """Whatever it says that production was."""
    stopped_by_an_administrator(node)

    restoration = node.run("restore", {"holder": "evil", "production_at_start": SERVED})["restoration"]
    of_nobody = node.run("restore", {"production_at_start": SERVED})["restoration"]

    assert "no trial stopped it" in restoration["message"], restoration
    assert "no trial stopped it" in of_nobody["message"], of_nobody
    assert not answers(node)


def test_restore_starts_nothing_that_its_trials_found_down(node: Node) -> None:
    """One trial of the sweep saw that it was stopped: the sweep's word that it ran is not taken."""
    stopped_by_an_administrator(node)
    assert node.run("launch", node.launch_request())["ready"]
    node.run("finish", node.finish_request(keep_lock=True))

    restoration = node.run("restore", {"holder": "sweep-1", "production_at_start": SERVED})["restoration"]

    assert "ended by itself" not in restoration["message"], restoration
    assert not answers(node)


RECORD = {"nonce": "n", "trial_id": "t", "boot_id": clock.boot_id()}
HUGE = 10**400


@pytest.mark.parametrize(
    "change",
    [
        {"renewed_boot_s": HUGE},
        {"renewed_boot_s": float("nan")},
        {"lease_s": 1e9},
        {"renewed_boot_s": clock.boot_s() + 9e6},
        {"renewed_boot_s": []},
    ],
    ids=["huge renewal", "nan renewal", "long", "future", "list"],
)
def test_numbers_that_nobody_writes(state: State, change: dict[str, Any]) -> None:
    """Of a lease without a checksum too, as an older node script wrote it."""
    now = {"boot_id": clock.boot_id(), "renewed_boot_s": clock.boot_s(), "lease_s": 60.0, "holder": "me"}
    state.path(lease.FILE).write_text(json.dumps({**now, **change}))

    assert lease.has_lapsed(state)
    assert "silent" in str(guard.is_due(state, RECORD))
