"""A user stops the process in which root does something with that user's rights: reads a command file of his, say.

Root waited for it without end, and it kept the node's mutex even after root's command was killed. It has nothing of
root's that is open, and is ended when it takes too long.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.guard import mutex
from tokenpeak.node.machine import clock, process_files, users
from tokenpeak.node.machine.state import State
from tokenpeak.node.machine.users import within

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


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


def test_process_has_nothing_of_root_s_that_is_open(tmp_path: Path) -> None:
    """Not the mutex, for one: only what it needs to answer, beside what is written to the caller."""
    with mutex.exclusive(State.make(tmp_path / "state")):
        descriptors: Any = within("nobody", opened)

    assert not any(str(tmp_path) in each for each in descriptors), descriptors
    assert len([each for each in descriptors if not each.startswith("pipe:")]) <= 4, descriptors


def opened() -> list[str]:
    """What the descriptors of this process lead to."""
    found = []
    for name in [entry.name for entry in Path("/proc/thread-self/fd").iterdir()]:
        try:
            found.append(str(Path(f"/proc/thread-self/fd/{name}").readlink()))
        except OSError:
            continue  # the listing's own
    return found


SCRIPT = """
import os, signal, sys
from pathlib import Path
from tokenpeak.node.guard import mutex
from tokenpeak.node.machine import users
from tokenpeak.node.machine.state import State
def stop():
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
with mutex.exclusive(State(Path(sys.argv[1]))):
    users.within("nobody", stop)
"""


def test_mutex_is_free_when_root_s_command_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the process is still stopped."""
    monkeypatch.setattr(mutex, "longest_s", lambda state: 0.5)
    state = State.make(tmp_path / "state")
    argv = [sys.executable, "-c", SCRIPT, str(state.folder)]
    env = {**os.environ, "PYTHONPATH": str(Path(users.__file__).parents[3])}
    command = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    assert command.stdout
    stopped = int(command.stdout.readline())
    try:
        assert clock.wait_until(lambda: is_stopped(stopped), 10)
        command.kill()
        command.wait()
        with mutex.exclusive(state):
            assert is_stopped(stopped)
    finally:
        os.kill(stopped, signal.SIGKILL)
        command.stdout.close()


def is_stopped(pid: int) -> bool:
    found = process_files.stat_of(pid)
    return found is not None and found.state == "T"
