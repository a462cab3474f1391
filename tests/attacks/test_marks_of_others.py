"""A local user starts processes that bear the mark of TokenPeak's own, and that do not end when they are asked to.

Each cost a restoration the whole grace, one after the other and without end, with production down. A mark counts only
on processes of root or of the engine's user, and all of them share one grace and one deadline. Of those only
the beginning of the environment is read: 150 processes with 6 MB each, shared by fork, cost 24 s at each look.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tokenpeak.node.machine import clock, process, process_files

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


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")
@pytest.mark.parametrize("hidden", [False, True])
def test_process_of_another_user(deaf: Start, hidden: bool) -> None:
    """It is not found, waited for or ended, whatever its folder in /proc says of its owner; the engine's user's is."""
    theirs = deaf(NOBODY, hidden)

    assert [] == process.marked(MARK)
    assert [] == process.stop_marked(MARK, 60.0)
    assert process_files.stat_of(theirs)
    assert [theirs] == process.marked(MARK, [NOBODY])


def test_all_share_one_grace(deaf: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes that ignore SIGTERM are waited for once, together, and then killed."""
    pids = [deaf(os.geteuid(), False) for _ in range(3)]
    graces: list[float] = []

    def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.02) -> bool:
        graces.append(timeout_s)
        return waited(condition, min(timeout_s, 0.2), poll_s)

    waited = clock.wait_until
    monkeypatch.setattr(clock, "wait_until", wait_until)

    assert sorted(pids) == process.marked(MARK)
    assert [] == process.stop_marked(MARK, 31.0)
    assert 1 == graces.count(31.0)
    assert not any(process_files.stat_of(pid) for pid in pids)


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
