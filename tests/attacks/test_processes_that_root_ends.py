"""The engine's user has root end processes of others: by pids that are given out again, or by what his Podman says.

Children that live for moments walk through all pids while root waits out the engine's grace: what others started
meanwhile had a pid that root had noted, and was killed. And the Podman of a `rootless_user` says any pid for the
engine's container; root killed that process with its group, session and descendants. What an engine leaves without its
first thread, on the other hand, was no process to root.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import ATTACKER
from tests.attacks.test_times_of_a_request import LAUNCH

from tokenpeak.node.engine.container import EngineContainer
from tokenpeak.node.engine.engine import FILE, Engine
from tokenpeak.node.machine import clock, containers, process, process_files, users
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.protocol.requests import LaunchRequest, parse

VICTIM = 65533
SUBORDINATE = 200_007
Start = Callable[[int], "subprocess.Popen[bytes]"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process of a user in a session of its own."""
    with ExitStack() as running:

        def started(user: int) -> "subprocess.Popen[bytes]":
            rights: Any = {"user": user, "group": user, "extra_groups": []} if user != os.geteuid() else {}
            child = subprocess.Popen(["/usr/bin/sleep", "60"], cwd="/", start_new_session=True, **rights)
            running.callback(child.wait)
            running.callback(child.kill)
            return child

        yield started


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_pid_that_is_given_out_again(start: Start, monkeypatch: pytest.MonkeyPatch, has_descriptors: bool) -> None:
    """A process of the group has ended between the look and the signal: who has its pid now is not ended."""
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open")
    other = start(os.geteuid())
    now = process_files.stat_of(other.pid)
    assert now
    before = now._replace(started_ticks=now.started_ticks - 1)
    looks = process_files.all_processes
    monkeypatch.setattr(
        process, "all_processes", lambda: [monkeypatch.setattr(process_files, "all_processes", looks) or before]
    )

    left = process.stop_group({**process.identity(other.pid), "started_ticks": before.started_ticks}, 0.2)

    assert [] == left
    assert other.poll() is None


def test_process_without_its_first_thread(tmp_path: Path) -> None:
    """It looks like a zombie to whoever reads its state alone, and holds its memory: it is known and ended."""
    script = (
        "import ctypes, platform, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "print(1, flush=True); ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)"
    )
    started = process.start_detached([sys.executable, "-S", "-c", script], log=tmp_path / "log")
    leader = process.identity(started.pid)
    is_like_zombie = clock.wait_until(lambda: b") Z " in process_files.shown_by_kernel(started.pid, "stat"), 60)
    is_known = process.is_alive(leader)

    left = process.stop_group(leader, 5.0)
    is_ended = clock.wait_until(lambda: started.poll() is not None, 5.0)
    if not is_ended:
        started.kill()
        started.wait()

    assert (True, True, True) == (is_like_zombie, is_known, is_ended)
    assert [] == left


@needs_root
def test_group_of_another_user(start: Start, tmp_path: Path) -> None:
    """The engine has ended, and its pid is that of another user's group: only what is the engine's user's is ended."""
    victim, own = start(VICTIM), start(ATTACKER)
    state = State.make(tmp_path / "state")
    for each in (victim, own):
        state.write(FILE, {"unit": None, "uid": ATTACKER, **process.identity(each.pid)})
        assert [] == Engine(state).stop(0.0)

    assert victim.poll() is None
    assert -signal.SIGKILL == own.wait(5) or -signal.SIGTERM == own.returncode


@needs_root
def test_engine_s_user_is_recorded(tmp_path: Path) -> None:
    """By which its processes are known, whatever becomes of the declaration."""
    state = State.make(tmp_path / "state")
    engine = Engine(state)
    request = replace(parse(LaunchRequest, LAUNCH), argv=("/usr/bin/sleep", "60"), trial_id="0000-abc")

    engine.start(request, {}, {"user": "nobody", "isolation": "process"}, None)

    assert ATTACKER == (state.read(FILE) or {})["uid"]
    assert [] == engine.stop(5.0)
    assert engine.child
    assert engine.child.poll() is not None


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineContainer:
    """The engine's container in the rootless Podman of the attacker."""
    (tmp_path / "subuid").write_text("# nobody has\nnobody:200000:65536\nsomebody:x:y\nroot:400000:1\n")
    monkeypatch.setattr(users, "FILE", tmp_path / "subuid")
    monkeypatch.setattr(containers.Runtime, "write_log", lambda *_: None)
    state = State.make(tmp_path / "state")
    return EngineContainer(state, {"runtime": "podman", "user": "nobody", "id": "ab12" * 16})


def saying(pid: int) -> Callable[..., process.Ran]:
    """A Podman whose container's first process is that."""
    return lambda _, *words, **__: process.Ran(0, json.dumps({"Pid": pid}) if words[0] == "inspect" else "", "")


@needs_root
def test_pid_that_a_podman_says(start: Start, container: EngineContainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's process is refused as the container's, in words, and is not ended where it was recorded."""
    victim = start(VICTIM)
    monkeypatch.setattr(containers.Runtime, "run", saying(victim.pid))

    with pytest.raises(
        ScriptError, match=f"says that the engine's container is process {victim.pid}, which is another"
    ):
        container.start()
    container.end(process.identity(victim.pid), 0.0, container.state.path("engine.log"))

    assert victim.poll() is None


@needs_root
@pytest.mark.parametrize("user", [ATTACKER, SUBORDINATE])
def test_process_of_its_own(
    start: Start, container: EngineContainer, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    """One of the runtime's user, or of an id that is subordinate to him, is the container's and is ended."""
    own = start(user)
    monkeypatch.setattr(containers.Runtime, "run", saying(own.pid))

    assert own.pid == container.start()
    container.end(process.identity(own.pid), 0.0, container.state.path("engine.log"))

    assert own.wait(5) < 0
