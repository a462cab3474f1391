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

from tokenpeak.node import login, mutex
from tokenpeak.node.login import within
from tokenpeak.node.state import State

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def test_process_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for no longer than an action may take, and is gone then."""
    monkeypatch.setattr(login, "WITHIN_S", 0.3)
    began = time.monotonic()

    with pytest.raises(OSError, match=r"As user nobody: not done within 0\.3 s"):
        within("nobody", lambda: os.kill(os.getpid(), signal.SIGSTOP))

    assert time.monotonic() - began < 5
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


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
from tokenpeak.node import login, mutex
from tokenpeak.node.state import State
def stop():
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
with mutex.exclusive(State(Path(sys.argv[1]))):
    login.within("nobody", stop)
"""


def test_mutex_is_free_when_root_s_command_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the process is still stopped."""
    monkeypatch.setattr(mutex, "longest_s", lambda state: 0.5)
    state = State.make(tmp_path / "state")
    argv = [sys.executable, "-c", SCRIPT, str(state.folder)]
    env = {**os.environ, "PYTHONPATH": str(Path(login.__file__).parents[2])}
    command = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path(login.__file__).parents[2])}
    )
    assert command.stdout
    stopped = int(command.stdout.readline())
    command.kill()
    command.wait()
    try:
        with mutex.exclusive(state):
            state_of_it = Path(f"/proc/{stopped}/stat").read_text().rpartition(")")[2].split()[0]
    finally:
        os.kill(stopped, signal.SIGKILL)
        command.stdout.close()

    assert "T" == state_of_it
