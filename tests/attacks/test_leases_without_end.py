"""A user of the root-owned command starts leases, or other words of it, without end, and ends what called them.

Each was a unit of the system's with a process of root's, for one process of the caller's that had gone: nothing bounded
their number. Of each word only so many run at a time, and a lease on which nothing comes ends.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.node.conftest import Node

from tokenpeak.node.__main__ import answered
from tokenpeak.node.guard import heartbeats
from tokenpeak.node.installation import root_command
from tokenpeak.node.machine.state import State

HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "ab") as turns:
    fcntl.lockf(turns, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))
    print(1, flush=True)
    time.sleep(60)
"""


@contextmanager
def others(state: State, number: int, word: str) -> Iterator[None]:
    """So many other processes that have a turn of this word, in one."""
    first = root_command.TRIAL_COMMANDS.index(word) * root_command.MOST_AT_ONCE
    words = [str(state.path(root_command.TURNS)), str(first), str(number)]
    with subprocess.Popen([sys.executable, "-S", "-c", HOLD, *words], stdout=subprocess.PIPE) as holding:
        assert holding.stdout
        assert b"1\n" == holding.stdout.readline()
        try:
            yield
        finally:
            holding.kill()


def test_leases_at_a_time(node: Node) -> None:
    """One more is refused, in words; other words, the command of applies, and root itself are not kept from theirs."""
    state = State(node.folder)
    with others(state, root_command.MOST_AT_ONCE, "lease"):
        refused, status = answered("lease", node.folder, None, limited=True)
        with root_command.turn(state, "restore", for_apply=False), root_command.turn(state, "lease", for_apply=True):
            pass

    assert 3 == status
    assert f"`lease` runs {root_command.MOST_AT_ONCE} times on this node already" in refused["error"]["text"]


def test_one_more_that_there_is_room_for(node: Node) -> None:
    """It has the last place, and gives it back."""
    state = State(node.folder)
    with others(state, root_command.MOST_AT_ONCE - 1, "status"), ExitStack() as turns:
        for _ in range(2):
            assert "error" not in answered("status", node.folder, None, limited=True)[0]
        turns.enter_context(root_command.turn(state, "status", for_apply=False))


def test_disk_that_takes_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bound keeps production from being given back there."""
    monkeypatch.setattr(root_command.root_files, "appending", lambda _: os.open("/nonexistent", os.O_RDONLY))

    with root_command.turn(State(node.folder), "restore", for_apply=False):
        pass


def test_lease_without_a_line(node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends by itself, and says why."""
    reading, writing = os.pipe()
    ended: list[int] = []

    def end(status: int) -> None:
        ended.append(status)
        os.close(writing)

    monkeypatch.setattr(heartbeats, "SILENT_S", 0.05)
    monkeypatch.setattr(heartbeats, "_LOOK_S", 0.02)
    monkeypatch.setattr(heartbeats.os, "_exit", end)
    with os.fdopen(reading) as silent:
        monkeypatch.setattr(sys, "stdin", silent)
        os.write(writing, json.dumps({"number": 1, "holder": "nobody"}).encode() + b"\n")
        heartbeats.listen(State(node.folder))

    assert [3] == ended
    assert "No line of the lease came for 0.05 s" in capfd.readouterr().err
