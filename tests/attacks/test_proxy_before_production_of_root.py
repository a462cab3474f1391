"""The deployer changes a production of start and stop commands that runs as root behind another user's proxy.

Who listened at its `url` was taken for production, and was no root: the deployer's arguments then ran as root. Where
the manager does not say which processes are production's, a restricted user changes nothing.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.conftest import ATTACKER

from tokenpeak.node.machine import sockets
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import permission
from tokenpeak.node.production.describe import describe
from tokenpeak.node.production.managers import make_manager

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process of another user, which listens wherever somebody looks."""
    with subprocess.Popen(["sleep", "60"], user=ATTACKER, group=ATTACKER, extra_groups=[]) as child:
        monkeypatch.setattr(sockets, "listeners", lambda *address: [f"{child.pid} (sleep) of user nobody"])
        yield child.pid
        child.kill()


@pytest.mark.parametrize("manager", ["command", "kubernetes"])
def test_manager_that_does_not_say(place: Path, proxy: int, monkeypatch: pytest.MonkeyPatch, manager: str) -> None:
    """Refused, and `describe` says so before, with the way out."""
    declared = {"manager": manager, "url": "http://127.0.0.1:9", "start": ["true"], "stop": ["true"]}
    found = make_manager(declared, State.make(place / "state"))
    monkeypatch.setattr(found, "members", lambda: None)

    problem = permission.root_problem(found)

    assert "Which user production runs as is not seen" in str(problem)
    assert "run it as a user of its own" in str(problem)


def test_refusal_is_seen_before(place: Path, proxy: int) -> None:
    """What `describe` answers to a restricted user, and to an administrator."""
    file = place / "command"
    file.write_text("/opt/vllm\nserve\nm\n")
    production = {"manager": "command", "start": ["true"], "stop": ["true"], "check": ["true"]}
    state = State.make(place / "state")
    declaration = {"production": {**production, "command_file": str(file)}}

    assert "is not seen" in str(describe(state, declaration, limited=True).problem)
    assert describe(state, declaration).problem is None
