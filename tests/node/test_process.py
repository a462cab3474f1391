"""Processes are distinguished and ended whole."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokenpeak.node.machine import clock, process, process_files


def test_stat_of_a_hostile_name() -> None:
    """A process may call itself anything, a closing parenthesis and a state included."""
    raw = "42 (a) Z 1 (b) S 7 42 42 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 98765 0"

    assert process_files.Stat(42, "S", 7, 42, 42, 98765) == process_files.parse_stat(raw)


def test_group_that_ignores_sigterm(tmp_path: Path) -> None:
    """What ignores SIGTERM is killed after the grace, with children that left the session."""
    script = (
        "import signal,subprocess,sys,time; signal.signal(15, signal.SIG_IGN); "
        "subprocess.Popen([sys.executable,'-c','import signal,time;signal.signal(15,signal.SIG_IGN);"
        "print(1,flush=True);time.sleep(60)'], start_new_session=True); time.sleep(60)"
    )
    started = process.start_detached([sys.executable, "-c", script], log=tmp_path / "log")
    leader = process.identity(started.pid)
    assert clock.wait_until(lambda: (tmp_path / "log").read_text() == "1\n", 60)
    before = process.members(leader)

    left = process.stop_group(leader, grace_s=0.2)

    started.wait()
    assert 2 == len(before)
    assert [] == left
    assert [] == [pid for pid in before if process_files.stat_of(pid)]


PROTECTED = """
import pathlib, sys
from tokenpeak.node.machine import process
try:
    pathlib.Path("/proc/self/oom_score_adj").write_text("-900")
except PermissionError:
    sys.exit("not permitted")
show = ["cat", "/proc/self/oom_score_adj"]
process.start_detached(show, log=pathlib.Path(sys.argv[1])).wait()
print(process.run(show).out.strip(), pathlib.Path(sys.argv[1]).read_text().strip())
"""


def test_what_a_protected_guard_starts_is_not_protected(tmp_path: Path) -> None:
    """Production that the guard brings back is killed for want of memory no later than when others started it."""
    done = subprocess.run(
        [sys.executable, "-c", PROTECTED, str(tmp_path / "log")], capture_output=True, text=True, check=False
    )

    if done.stderr == "not permitted\n":
        pytest.skip("nobody may protect a process here")
    assert "0 0\n" == done.stdout, done.stderr


@pytest.mark.parametrize("where", ["", " >&2"])
def test_run_ends_what_prints_without_end(where: str) -> None:
    """What a command prints is held up to a bound; beyond it the command is ended and one sentence is the answer."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ran = process.run(["sh", "-c", f"exec yes{where}"], timeout_s=5)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert (125, "", "sh printed more than 4 MiB and was ended") == ran
    assert grown_kib < 64 << 10


def test_run_leaves_what_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's tool that hangs in the kernel does not keep the node from being given back."""
    deaf: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda command: deaf.append(command))
    began = time.monotonic()

    ran = process.run(["sleep", "20"], timeout_s=0.2)

    took_s = time.monotonic() - began
    monkeypatch.undo()
    for command in deaf:
        command.kill()
        command.wait()
    assert (124, True) == (ran.status, took_s < 10)
