"""The tuner stops root's command while it has the node's mutex and production is down.

Ctrl-Z in a terminal, `loginctl kill-session --signal=STOP` or the freezer of a scope of his did it: the guard waited
for the mutex without end, `restore` hung, and production stayed down. Whoever must give the node back ends such a
command after a bounded time, and no other wait for the mutex is without end; a command that works on is waited for.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard import mutex
from tokenpeak.node.machine import process_files
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State

HOLD = "import fcntl, os, sys, time; f = os.open(sys.argv[2], os.O_RDONLY); fcntl.flock(f, fcntl.LOCK_EX); "


@contextmanager
def holder(node: Node, then: str = "time.sleep(600)", folder: Path | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A command of the node that has the mutex."""
    words = ["tokenpeak-node.pyz", str(folder or node.folder)]
    argv = [sys.executable, "-c", f"{HOLD}print('held', flush=True); {then}", *words]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert started.stdout
    assert "held\n" == started.stdout.readline()
    yield started
    started.kill()
    started.communicate()


def take(node: Node, *, may_end: bool) -> None:
    """Have the mutex for a moment."""
    with mutex.exclusive(State(node.folder), may_end=lambda: may_end):
        return


def stopped(started: "subprocess.Popen[str]") -> None:
    os.kill(started.pid, signal.SIGSTOP)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutex, "SUSPENDED_S", 0.2)
    monkeypatch.setattr(mutex, "_LOOK_S", 0.05)


def trial_that_is_due(node: Node) -> None:
    """A trial has the node, its engine runs, and its controller is silent; no guard watches."""
    node.serve()
    assert node.run("launch", node.launch_request())["ready"]
    node.end_guard()
    node.fall_silent()


def test_guard_ends_it_and_production_is_back(node: Node) -> None:
    """The guard gives the node back in time."""
    trial_that_is_due(node)
    with holder(node) as stuck:
        stopped(stuck)

        node.run("guard")

        assert -signal.SIGKILL == stuck.wait(5)
    assert node.read("record.json") is None
    assert node.run("status")["production"]["running"]


def test_restore_of_a_person_ends_it(node: Node) -> None:
    """Whether the node is due or not; a sweep's own restore names it instead."""
    with holder(node) as stuck:
        stopped(stuck)

        refused = node.run("restore", {"holder": "sweep-1"})["error"]
        restored = node.run("restore")["restoration"]

    assert mutex.CODE == refused["code"]
    assert f"process {stuck.pid}" in refused["text"]
    assert restored["restored"], restored


def test_command_that_works_is_waited_for(node: Node) -> None:
    """A launch that waits for its drain is not ended, and its caller gets the mutex when it has let go."""
    with holder(node, then="time.sleep(1)") as working:
        take(node, may_end=True)
        assert 0 == working.wait(5)


@pytest.mark.parametrize(
    ("declared", "record", "more_s"),
    [
        ({}, {}, 60 + 900),
        ({"before": ["x"], "wait": {"metric": "m", "most_s": 7000}}, {}, 7060 + 60 + 900),
        ({}, {"engine_stop_s": 5, "production_ready_s": 3000}, 5 + 3000),
        ({}, {"engine_stop_s": 5, "production_ready_s": 30, "drain": {"wait": {"seconds": 600}}}, 780 + 35),
    ],
)
def test_bound_is_what_the_node_declares(
    node: Node, declared: dict[str, object], record: dict[str, object], more_s: float
) -> None:
    """All that such a command may take counts: its drain, its engine's end, production's return."""
    node.declare(drain=declared)
    needed = {"nonce": "n", "holder": "h", "boot_id": "b", "trial_id": "t", "production": {}}
    if record:
        node.rewrite("record.json", {**needed, **record})
    bound_s = mutex.longest_s(State(node.folder))
    (node.folder / "record.json").unlink(missing_ok=True)

    assert mutex.MANAGERS_S + more_s == bound_s


def test_command_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not stopped and does not let go is ended after that time; who may not end it hears of it."""
    monkeypatch.setattr(mutex, "longest_s", lambda state: 0.3)
    with holder(node) as stuck:
        with pytest.raises(ScriptError, match=rf"process {stuck.pid}\), which has not let go"):
            take(node, may_end=False)
        take(node, may_end=True)
        assert -signal.SIGKILL == stuck.wait(5)


def test_process_of_another_program_is_not_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator's `flock` of the folder is named, and not ended."""
    monkeypatch.setattr(mutex, "longest_s", lambda state: 0.2)
    link = Path(tempfile.mkdtemp(prefix="tokenpeak-attack-")) / "link"
    link.symlink_to(node.folder)
    with holder(node, folder=link) as other:
        stopped(other)
        with pytest.raises(ScriptError, match=f"process {other.pid}"):
            take(node, may_end=True)
        assert process_files.stat_of(other.pid)
    shutil.rmtree(link.parent)
