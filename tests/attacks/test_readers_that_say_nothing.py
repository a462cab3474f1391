"""A local user connects to `tokenpeak serve`, many times, and says nothing: each connection had a thread for ever."""

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tokenpeak.report.site import live

CONNECTIONS = 12


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The connections that got a thread."""
    made: list[object] = []
    setup = live._Handler.setup

    def noted(handler: live._Handler) -> None:
        made.append(handler)
        setup(handler)

    monkeypatch.setattr(live._Handler, "setup", noted)
    return made


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that is soon tired of who says nothing, and has few threads."""
    monkeypatch.setattr(live._Handler, "timeout", 0.5)
    monkeypatch.setattr(live, "MOST_READERS", threading.active_count() + 3)
    (tmp_path / "index.html").write_text("page")
    listening = live.server(tmp_path, "127.0.0.1", 0, lambda: b"")
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield listening.server_address[1]
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_who_says_nothing_is_left(port: int, handled: list[object]) -> None:
    """No more threads than readers may be, those that are silent end, and others are answered then."""
    with ExitStack() as held:
        places = [("127.0.0.1", port)] * CONNECTIONS
        silent = [held.enter_context(socket.create_connection(place, timeout=10)) for place in places]
        assert all(b"" == each.recv(1) for each in silent)
    ended_by = time.monotonic() + 10
    while threading.active_count() >= live.MOST_READERS and time.monotonic() < ended_by:
        time.sleep(0.01)

    assert 0 < len(handled) < CONNECTIONS
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=10) as answer:
        assert b"page" == answer.read()


def test_it_is_soon() -> None:
    """As it is set."""
    assert live._Handler.timeout is not None
    assert live._Handler.timeout <= 10
    assert live.MOST_READERS <= 100
