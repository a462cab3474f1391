"""Production that a pair of commands starts, and that is slow: it is started once, and two never load side by side."""

import os
import shlex
import signal
import sys
from contextlib import suppress
from typing import Any

import pytest
from tests.free_ports import free_port
from tests.node.conftest import STANDIN, Node

from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, process_files
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.command import STARTED
from tokenpeak.node.production.production import bring_back

pytestmark = pytest.mark.integration


class Slow:
    """Production of start and stop without check, whose start takes a while to answer and leaves its pid in a file."""

    def __init__(self, node: Node, **declared: Any) -> None:
        self.folder = node.folder.parent
        self.pids = self.folder / "pids"
        self.pids.touch()
        self.port = free_port()
        self.state = State(node.folder)
        self.declared = {
            "manager": "command",
            "url": f"http://127.0.0.1:{self.port}",
            "start": [str(self.folder / "start")],
            "stop": [str(self.folder / "stop")],
            **declared,
        }
        self.takes(0.0)
        # As pkill does, it ends with status 1 where there is nothing to stop.
        self._script("stop", f'for pid in $(tac {self.pids}); do kill -9 $pid && found=1; done; test -n "$found"')
        node.declare(production=self.declared)

    def _script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def takes(self, start_s: float, *options: str) -> None:
        """How long the next start takes until it answers."""
        argv = [sys.executable, str(STANDIN), "serve", "prod", "--port", str(self.port), "--start-s", str(start_s)]
        self._script("start", f"{shlex.join([*argv, *options])} </dev/null >/dev/null 2>&1 & echo $! >> {self.pids}")

    @property
    def starts(self) -> list[int]:
        """The pids of all starts, the first one first."""
        return [int(line) for line in self.pids.read_text().split()]

    @property
    def alive(self) -> list[int]:
        """Those that live."""
        return [pid for pid in self.starts if process_files.stat_of(pid)]

    def bring_back(self, ready_s: float) -> Any:
        """As a restoration does."""
        recorded = {
            "manager": "command",
            "unit": None,
            "running": True,
            "url": self.declared["url"],
            "model": "prod",
            "definition": {},
            "declared": self.declared,
        }
        return bring_back(recorded, self.state, ready_s, Phases(self.state))

    def end(self) -> None:
        for pid in self.starts:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def slow(node: Node, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whose starts have no longer than `ready_s`."""
    monkeypatch.setattr("tokenpeak.node.production.production.LEAST_LOAD_S", 0.0)
    made = Slow(node, **getattr(request, "param", {}))
    yield made
    made.end()


def test_slow_is_not_dead(slow: Slow) -> None:
    """It answers after more than the second within which a manager that knows would have said that it ended."""
    slow.takes(1.5)

    assert slow.bring_back(20) is None
    assert 1 == len(slow.starts)
    assert not slow.state.has(STARTED), "and from now on silence is an end"


@pytest.mark.parametrize("slow", [{"check": ["/bin/false"]}], indirect=True)
def test_a_check_that_asks_the_server(slow: Slow) -> None:
    """A check that says no while the server loads does not start another beside it."""
    slow.takes(600.0)

    slow.bring_back(0.5)
    slow.bring_back(0.5)

    assert 1 == len(slow.alive)


def test_one_that_never_answers_is_stopped_before_the_next(slow: Slow) -> None:
    """After production_ready_s it may be started again, never beside what the first start left."""
    slow.takes(600.0)
    alive = set()
    while len(slow.starts) < 3:
        assert slow.bring_back(0.1) is not None
        alive.add(len(slow.alive))
    slow.takes(0.0)

    assert clock.wait_until(lambda: slow.bring_back(1.0) is None, 60)
    assert {1} == alive
    assert (4, 1) == (len(slow.starts), len(slow.alive))


@pytest.mark.parametrize("slow", [{"check": ["false"]}], indirect=True)
def test_a_stop_that_leaves_it_serving(node: Node, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Production that its manager calls stopped, and that answers on, is not joined by an engine; the words say why."""
    monkeypatch.setattr("tokenpeak.node.production.production.STOPPED_WITHIN_S", 0.2)
    flag = slow.folder / "runs"
    flag.touch()
    slow._script("stop", f"rm {flag}")
    node.declare(production={**slow.declared, "check": ["test", "-e", str(flag)]})
    slow.takes(0.0)
    assert slow.bring_back(20) is None

    refused = node.run("launch", node.launch_request())

    assert "is stopped by its manager's account, yet" in refused["error"]["text"], refused
    assert "stop it by hand" in refused["error"]["text"]
    assert node.read("engine.json") is None
    flag.touch()
    assert node.run("restore")["restoration"]["restored"]


def test_a_launch_does_not_begin_beside_it(node: Node, slow: Slow) -> None:
    """Production that loads is no production that is down: no engine is started there."""
    slow.takes(600.0)
    make_manager(slow.declared, slow.state).start({})

    refused = node.run("launch", node.launch_request())

    assert "production_unwell" == refused["error"]["code"], refused
    assert 1 == len(slow.alive)
