"""A local user stops, hides or holds a process for which root's command waits, with production stopped.

Ctrl-Z on root's command, a process with TokenPeak's mark that ignores SIGTERM, a file system behind a process's memory
that does not answer: each wait is bounded, and whoever must give the node back does.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.attacks.conftest import needs_root
from tests.node.conftest import Node

from tokenpeak.node.guard import mutex
from tokenpeak.node.machine import clock, process, process_files, users
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.machine.users import within

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


def test_command_that_works_is_waited_for(node: Node) -> None:
    """A launch that waits for its drain is not ended, and its caller gets the mutex when it has let go."""
    with holder(node, then="time.sleep(1)") as working:
        take(node, may_end=True)
        assert 0 == working.wait(5)


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


@needs_root
def test_process_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for no longer than an action may take, and is gone then."""
    monkeypatch.setattr(users, "WITHIN_S", 0.3)
    forks: list[int] = []
    fork = os.fork

    def noted() -> int:
        forks.append(fork())
        return forks[-1]

    monkeypatch.setattr(os, "fork", noted)
    began = time.monotonic()

    with pytest.raises(OSError, match=r"As user nobody: not done within 0\.3 s"):
        within("nobody", lambda: os.kill(os.getpid(), signal.SIGSTOP))

    assert time.monotonic() - began < 5
    assert forks
    assert [] == [pid for pid in forks if process_files.stat_of(pid) is not None]


NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
"""One that every user may run."""
MARK = "engine-00000000"
DEAF = """
import ctypes, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if {hidden}:
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE: its folder in /proc is root's from now on
print(1, flush=True)
time.sleep(60)
"""
Start = Callable[[int, bool], int]


@pytest.fixture
def deaf() -> Iterator[Start]:
    """Starts a process of a user with the mark, which ignores SIGTERM; its pid."""
    with ExitStack() as running:

        def start(user: int, hidden: bool) -> int:
            child = subprocess.Popen(
                [SYSTEM_PYTHON, "-S", "-c", DEAF.format(hidden=hidden)],
                stdout=subprocess.PIPE,
                env={"TOKENPEAK_STARTED_AS": MARK},
                cwd="/",
                start_new_session=True,
                **({"user": user, "group": user, "extra_groups": []} if user != os.geteuid() else {}),
            )
            running.callback(child.communicate)
            running.callback(child.kill)
            assert child.stdout
            assert b"1\n" == child.stdout.readline()
            return child.pid

        yield start


@needs_root
@pytest.mark.parametrize("hidden", [False, True])
def test_process_of_another_user(deaf: Start, hidden: bool) -> None:
    """It is not found, waited for or ended, whatever its folder in /proc says of its owner; the engine's user's is."""
    theirs = deaf(NOBODY, hidden)

    assert [] == process.marked(MARK)
    assert [] == process.stop_marked(MARK, 60.0)
    assert process_files.stat_of(theirs)
    assert [theirs] == process.marked(MARK, [NOBODY])


ENGINE_MARK = "a trial's engine"


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Processes whose readers wait until the test has ended."""
    pids: list[int] = []
    is_over = threading.Event()
    shown = process_files.shown_by_kernel

    def delayed(pid: int, name: str, *bound: int) -> bytes:
        if pid in pids and name in ("environ", "cmdline"):
            is_over.wait(60)
        return shown(pid, name, *bound)

    monkeypatch.setattr(process_files, "shown_by_kernel", delayed)
    monkeypatch.setattr(process_files, "ONE_WITHIN_S", 0.05)
    yield pids
    is_over.set()
    assert clock.wait_until(lambda: not any(each.is_alive() for each in process_files._delayed.values()), 10)


def test_engine_is_found_beside_it(locked: list[int], tmp_path: Path) -> None:
    """Of several in front of the engine each costs one wait, once."""
    locked += [*sorted(process_files.pids())[:3], os.getppid()]
    argv = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    started = process.start_detached(argv, log=tmp_path / "log", mark=ENGINE_MARK)
    try:
        began_s = time.monotonic()
        found = [process.marked(ENGINE_MARK) for _ in range(20)]
        took_s = time.monotonic() - began_s
    finally:
        started.kill()
        started.wait()

    assert [[started.pid]] * 20 == found
    assert took_s < 10


def test_environment_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning is read, where a process that root starts has the mark, however long the rest is."""
    large = {f"V{number}": "x" * 100_000 for number in range(10)}
    env = {**large, "TOKENPEAK_STARTED_AS": "another"}
    argv = [sys.executable, "-S", "-c", "import time; print(1, flush=True); time.sleep(60)"]
    started = process.start_detached(argv, log=tmp_path / "log", env=env, mark=MARK)
    assert clock.wait_until(lambda: (tmp_path / "log").read_text() == "1\n", 60)
    environments: list[int] = []
    shown = process_files.shown_by_kernel

    def counted(pid: int, name: str, *bound: int) -> bytes:
        raw = shown(pid, name, *bound)
        environments.append(len(raw) if name == "environ" and pid == started.pid else 0)
        return raw

    monkeypatch.setattr(process_files, "shown_by_kernel", counted)
    found = process.marked(MARK)
    started.kill()
    started.wait()

    assert [started.pid] == found
    assert 0 < max(environments) <= 1 << 16
