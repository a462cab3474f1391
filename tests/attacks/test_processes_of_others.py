"""A local user has root end, wait for or trust a process that is not what root takes it for.

Pids are given out again, a rootless Podman says any pid, a control group can be named by production's id, and a user
has descriptors without end to be looked through. Root ends and trusts what the kernel says is the engine's.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import ATTACKER, needs_root

from tokenpeak.node.engine.container import EngineContainer
from tokenpeak.node.engine.engine import FILE, Engine
from tokenpeak.node.machine import clock, containers, process, process_files, sockets, users
from tokenpeak.node.machine.containers import of_containers
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.managers.kubernetes import KubernetesManager

VICTIM = 65533
Start = Callable[[int], "subprocess.Popen[bytes]"]


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


ID = "ab12" * 16
UID = "8f2d1c00-1111-2222-3333-444455556666"
OWN = f"pod{UID}"
SLICE = OWN.replace("-", "_")
LEADER, OTHER = 4_194_301, 4_194_302
"""Pids that no process has: the kernel gives out none so high."""
SESSION = "/user.slice/user-1005.slice/user@1005.service"
Groups = Callable[[str, str], None]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Puts the two processes into these control groups."""

    def put(leader: str, other: str) -> None:
        found = {LEADER: leader, OTHER: other}
        monkeypatch.setattr(process_files, "_lines", lambda pid, name: [f"0::{found[pid]}"])

    return put


@pytest.mark.parametrize(
    "group",
    [
        f"/docker/{ID}",
        f"/system.slice/prod.service/libpod-payload-{ID}",
        f"{SESSION}/user.slice/libpod-{ID}.scope/container",
    ],
)
@pytest.mark.parametrize(
    "other",
    [
        f"{SESSION}/app.slice/docker-{ID}.scope",
        f"/system.slice/docker-{ID}.scope-x/y",
        "/",
    ],
)
def test_namesake_of_a_container(groups: Groups, group: str, other: str) -> None:
    """Of production, and of an engine: a namesake is neither; what is in the container's own group is."""
    groups(group, other)
    inspected = [{"Id": ID, "State": {"Pid": LEADER}}]
    engine = EngineContainer.__new__(EngineContainer)
    engine.id = ID

    found = [of_containers(inspected, 0)(OTHER), engine.members(LEADER)(OTHER)]
    groups(group, f"{group.removesuffix('/container')}/exec")
    own = [of_containers(inspected, 0)(OTHER), engine.members(LEADER)(OTHER)]

    assert [False, False] == found
    assert [True, True] == own


@pytest.mark.parametrize(
    ("group", "is_own"),
    [
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{SLICE}.slice/cri-containerd-{ID}.scope", True),
        (f"/docker/{ID}/kubelet/kubepods/{OWN}/{ID}", True),
        (f"/system.slice/docker-{ID}.scope/kubelet.slice/kubelet-kubepods-{SLICE}.slice/x.scope", True),
        (f"{SESSION}/app.slice/{OWN}.service", False),
        (f"/system.slice/theirs.service/kubepods/{OWN}/x", False),
        (f"/kubepods/{OWN}0/y", False),
    ],
)
def test_namesake_of_a_pod(groups: Groups, monkeypatch: pytest.MonkeyPatch, group: str, is_own: bool) -> None:
    """A whole part of the path, outside of what a user may name."""
    groups("/", group)
    manager = KubernetesManager({"manager": "kubernetes", "unit": "deployment/x"}, None)  # type: ignore[arg-type]
    monkeypatch.setattr(manager, "workload", dict)
    monkeypatch.setattr(manager, "pods", lambda workload: [{"metadata": {"uid": UID}}])
    is_member = manager.members()

    assert is_member is not None
    assert is_own is is_member(OTHER)


DESCRIPTORS = 300
PROCESSES = 3
FIRST_SUBORDINATE = 200_000
OPEN = f"import os, time; [os.dup(0) for _ in range({DESCRIPTORS})]; print(flush=True); time.sleep(600)"


@contextmanager
def flood(*inherited: int, first: int = ATTACKER, step: int = 0) -> Iterator[set[int]]:
    """Processes of the attacker with many descriptors, or of one id each from `first` on; their pids."""
    started = [
        subprocess.Popen(
            ["setpriv", f"--reuid={first + number * step}", "--clear-groups", "/usr/bin/python3", "-c", OPEN],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd="/",
            pass_fds=inherited,
            close_fds=True,
        )
        for number in range(PROCESSES)
    ]
    for each in started:
        assert each.stdout
        each.stdout.readline()
    yield {each.pid for each in started}
    for each in started:
        each.kill()
        each.communicate()


@needs_root
@pytest.mark.parametrize(
    ("first", "step"), [(ATTACKER, 0), (FIRST_SUBORDINATE, 1)], ids=["one user", "subordinate ids"]
)
def test_a_user_s_descriptors_are_looked_at_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, step: int
) -> None:
    """In all of his processes together; the socket's own process is found all the same."""
    (tmp_path / "subuid").write_text(f"unknown:1:5\n{ATTACKER}:{FIRST_SUBORDINATE}:65536\n")
    monkeypatch.setattr(users, "FILE", tmp_path / "subuid")
    looks: list[str] = []
    leads_to = sockets._leads_to

    def counted(path: str) -> str | None:
        looks.append(path)
        return leads_to(path)

    monkeypatch.setattr(sockets, "_leads_to", counted)
    monkeypatch.setattr(sockets, "MOST_DESCRIPTORS", DESCRIPTORS // 2)
    with socket.create_server(("127.0.0.1", 0)) as server, flood(first=first, step=step) as attackers:
        with socket.create_connection(server.getsockname()) as connection:
            found = sockets.peer(connection)
        looked = [path for path in looks if int(path.split("/")[2]) in attackers]

    assert (os.getpid(),) == found.pids
    # Another process of that user, of another test say, counts as well.
    assert 0 < len(looked) <= DESCRIPTORS // 2


@needs_root
def test_every_holder_within_the_bound_is_found() -> None:
    """A process of another user that holds the socket as well is not overlooked: a key goes to none but production."""
    server = socket.create_server(("127.0.0.1", 0))
    with server, flood(server.fileno()) as attackers, socket.create_connection(server.getsockname()) as connection:
        found = sockets.peer(connection)

    assert {os.getpid(), *attackers} == set(found.pids)
