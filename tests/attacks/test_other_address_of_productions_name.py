"""Any user of the node listens where production's url may lead and production does not: it is started all the same.

`http://localhost:8000` leads to [::1] and to 127.0.0.1. Production listens at one of them; whoever listened at the
other while a trial had the node kept production down for as long as he liked. What root made, or production's own user,
may be production that somebody started by hand: beside that none is started.
"""

import ctypes
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from types import SimpleNamespace

import pytest

from tokenpeak.node.engine import serving
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, program
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.production import managers, production
from tokenpeak.node.production.manager import Manager

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a socket of another user")

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


def test_stranger_at_another_address(servers: Servers, tmp_path: Path) -> None:
    """Production is stopped, started and answers, and the message names the stranger."""
    servers.listen(OTHER, NOBODY)
    was, state = recorded(servers), State(tmp_path)

    production.stop(was, state)
    wrong = production.bring_back(was, state, 5.0, PHASES)  # type: ignore[arg-type]

    assert wrong is None, wrong
    assert servers.servers[-1].server_address[0] == OWN
    assert f"of user {NOBODY}" in production.strangers(was, state)


def test_stranger_at_its_own_address(servers: Servers, tmp_path: Path) -> None:
    """Its start is tried, whatever comes of it: a stranger may leave at any time."""
    servers.listen(OTHER, NOBODY)
    was, state = recorded(servers, OTHER), State(tmp_path)

    wrong = production.bring_back(was, state, 0.1, PHASES)  # type: ignore[arg-type]

    assert servers.servers[-1].server_address[0] == OWN
    assert wrong is not None
    assert f"of user {NOBODY}" in wrong.text


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


def test_link_local_address_keeps_its_interface() -> None:
    """Without it nobody is reached there."""
    assert [("fe80::1%lo", 8000)] == serving._addresses("fe80::1%lo", 8000)
