"""The test load of a bake counts each request once, and each failure with the first one's reason."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tokenpeak.node.machine import clock
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.answering import OfProduction
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.observation import BakeLoad


class Answers(BaseHTTPRequestHandler):
    """Every third completion is refused."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        """The model's name."""
        self._answer(200, {"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        """A completion, or a refusal."""
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        refused = type(self).asked % 3 == 0
        self._answer(503 if refused else 200, {"error": "overloaded"} if refused else {"choices": []})

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def url() -> Iterator[str]:
    """A server of completions on this machine."""
    Answers.asked = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_and_failures_are_counted(url: str, tmp_path: Path) -> None:
    """As many as the server saw, and a third of them failed."""
    declared = {"manager": "command", "url": url, "start": ["true"], "stop": ["true"]}
    manager = make_manager(declared, State.make(tmp_path / "state"))
    load = BakeLoad(declared, OfProduction(manager), 1)

    with load:
        assert clock.wait_until(lambda: load.sent >= 9, 30)

    assert Answers.asked == load.sent
    assert Answers.asked // 3 == load.failed
    assert 'HTTP 503: {"error": "overloaded"}' == load.failure
