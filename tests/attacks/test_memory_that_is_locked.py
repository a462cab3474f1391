"""A user holds the lock of his process's memory, by a page of a file system that he serves and does not answer.

Whoever reads that process's environment or arguments waits for as long as he likes: root's command, with production
stopped, must not. Its own processes are still found beside such a one.
"""

import ast
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpeak.node.machine import clock, process, process_files, users
from tokenpeak.node.machine.process_files import command_lines, shown_in_time

MARK = "a trial's engine"


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
    started = process.start_detached(argv, log=tmp_path / "log", mark=MARK)
    try:
        began_s = time.monotonic()
        found = [process.marked(MARK) for _ in range(20)]
        took_s = time.monotonic() - began_s
    finally:
        started.kill()
        started.wait()

    assert [[started.pid]] * 20 == found
    assert took_s < 10


def test_arguments_of_the_others(locked: list[int]) -> None:
    """A look at all processes leaves it out."""
    locked.append(os.getppid())

    shown = command_lines(process_files.pids())

    assert os.getppid() not in shown
    assert os.getpid() in shown
    assert os.getpid() in shown_in_time([os.getppid(), os.getpid()], "environ")


def test_reader_that_waits_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose processors are all busy nobody is left out: an engine would be taken for ended."""
    shown, until_s = process_files.shown_by_kernel, time.monotonic() + 0.5

    def busy(pid: int, name: str, *bound: int) -> bytes:
        while name == "environ" and time.monotonic() < until_s:
            pass
        return shown(pid, name, *bound)

    monkeypatch.setattr(process_files, "shown_by_kernel", busy)
    monkeypatch.setattr(process_files, "ONE_WITHIN_S", 0.02)

    assert os.getpid() in shown_in_time([os.getpid()], "environ")


def test_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine has no room for a thread, it is read all the same."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)

    assert os.getpid() in shown_in_time([os.getpid()], "environ")


def test_child_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process that its user's file system keeps in the kernel is left there."""
    monkeypatch.setattr(users, "WITHIN_S", 0.0)
    monkeypatch.setattr(users, "_ENDED_WITHIN_S", 0.1)
    monkeypatch.setattr(users.os, "kill", lambda *_: None)
    if os.geteuid() != 0:
        pytest.skip("needs root")
    children: list[int] = []
    fork = os.fork
    monkeypatch.setattr(users.os, "fork", lambda: children.append(fork()) or children[-1])

    try:
        with pytest.raises(OSError, match="not done within 0 s"):
            users.within("nobody", lambda: time.sleep(60))
    finally:
        monkeypatch.undo()
        os.kill(children[0], 9)
        os.waitpid(children[0], 0)


def test_one_module_reads_it() -> None:
    """Of the node script, no other names these files of a process than itself."""
    names = {"environ", "cmdline"}
    readers = {
        path.name
        for path in Path(process.__file__).parents[1].rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) != "shown_in_time"
        for each in call.args
        if isinstance(each, ast.Constant) and each.value in names
    }

    assert set() == readers
