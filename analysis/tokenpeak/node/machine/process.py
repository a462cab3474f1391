"""Processes, identified by pid, start time and boot, never by name.

A group is everything in a leader's session or process group, with all descendants.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Collection, Iterable, NamedTuple, Sequence, Tuple

from tokenpeak.node.machine import clock, root_files
from tokenpeak.node.machine.error import remedy
from tokenpeak.node.machine.process_files import (
    Stat,
    all_processes,
    ordered_user_ids,
    pids,
    shown_in_time,
    stat_of,
    user_ids,
)
from tokenpeak.node.machine.users import before_exec, users_environment

PYTHON_OPTIONS = ("-I", "-S")
"""Options that this script is started with: nothing of a caller's environment, and of Python its own library alone."""
KILL_TIMEOUT_S = 20.0
KILLED_WITHIN_S = 1.0
_LOOK_S = 0.05
"""Between two looks at whether a group has ended, each of which reads every process of the machine."""
MOST_OUTPUT_BYTES = 4 << 20
"""Of a command: `vllm serve --help=all` prints some hundred kilobytes."""
MOST_MARKED_BYTES = 1 << 16
"""Of an environment in which a mark is looked for: it is its first entry."""
_MARK = "TOKENPEAK_STARTED_AS"
"""In the environment of what this script starts: found again by it where the record of its pid is lost."""

Users = Sequence[range]
"""Ids of users: a user's own, and those that are subordinate to him."""
Life = Tuple[int, int]
"""A pid with the time of its start in ticks: one process, where a pid alone is another's as soon as that has ended."""


def is_alive_still(life: Life) -> bool:
    """Whether this very process lives, and not merely one with its pid."""
    stat = stat_of(life[0])
    return stat is not None and stat.started_ticks == life[1]


def one_user(uid: int) -> Users:
    """That user alone."""
    return [range(uid, uid + 1)]


def is_of(pid: int, users: Users) -> bool:
    """Whether one of the users could end the process: the kernel goes by its real and its saved user."""
    uids = ordered_user_ids(pid)
    return any(uid in each for uid in uids[:1] + uids[2:3] for each in users)


def identity(pid: int) -> dict[str, Any]:
    """Pid, start and boot, which distinguish this process from a later one with the same pid."""
    stat = stat_of(pid)
    return {"pid": pid, "started_ticks": stat.started_ticks if stat else None, "boot_id": clock.boot_id()}


def is_alive(who: dict[str, Any] | None) -> bool:
    """Whether the process with this identity still runs."""
    if not who or who.get("boot_id") != clock.boot_id() or type(who.get("pid")) is not int:
        return False
    stat = stat_of(who["pid"])
    return stat is not None and stat.started_ticks == who.get("started_ticks")


def members(leader: dict[str, Any]) -> list[int]:
    """The living pids of the group that `leader` leads or led, descendants that left its session included.

    A pid is not given out again while it names a living group or session, so a group that outlived its leader is
    still distinguished; a new process that got the leader's pid is recognised by its start time.
    """
    return sorted(pid for pid, _ in _group(leader))


def _group(leader: dict[str, Any]) -> set[Life]:
    if leader.get("boot_id") != clock.boot_id():
        return set()
    pid = int(leader["pid"])
    processes = all_processes()
    by_pid = {process.pid: process for process in processes}
    if pid in by_pid and by_pid[pid].started_ticks != leader.get("started_ticks"):
        return set()
    return _with_descendants({p.pid for p in processes if pid in (p.pid, p.group, p.session)}, processes)


def _with_descendants(family: set[int], processes: Sequence[Stat]) -> set[Life]:
    while True:
        children = {p.pid for p in processes if p.parent in family} - family
        if not children:
            return {(p.pid, p.started_ticks) for p in processes if p.pid in family}
        family = family | children


def is_member_of(leader: int) -> Callable[[int], bool]:
    """Whether a process belongs to the group that the living process `leader` leads, by `members`."""
    pids_of_group = set(members(identity(leader)))
    return lambda pid: pid in pids_of_group


def stop_group(leader: dict[str, Any], grace_s: float, users: Users | None = None) -> list[int]:
    """End a group: SIGTERM, `grace_s` seconds, then SIGKILL; the pids that are left even then (normally none).

    With `users`, whose group it is, no process that none of them could end: somebody else's that is in the group by
    what they say of its leader, or by the pid of a leader that has ended.
    """
    return _stop(lambda: _group(leader), grace_s, users)


def marked(mark: str, users: Collection[int] = ()) -> list[int]:
    """The living pids that were started with this mark or inherited it, of this script's own user or one of `users`.

    Anybody can start a process with that mark.
    """
    return sorted(pid for pid, _ in _bearers(mark, users))


def _bearers(mark: str, users: Collection[int]) -> set[Life]:
    trusted = {os.geteuid(), *users}
    wanted = f"\0{_MARK}={mark}\0".encode()
    lives = {}
    for pid in pids():
        # Its user first: what a stranger's process shows is not even read.
        users_of_it = user_ids(pid)
        if users_of_it and users_of_it <= trusted and (stat := stat_of(pid)) is not None:
            lives[pid] = stat.started_ticks
    environments = shown_in_time(lives, "environ", MOST_MARKED_BYTES)
    return {(pid, lives[pid]) for pid, shown in environments.items() if wanted in b"\0" + shown}


def stop_marked(mark: str, grace_s: float, users: Collection[int] = ()) -> list[int]:
    """End everything that bears the mark with all that it started, within one grace; the pids left after SIGKILL.

    With `users`, of what it started only what they or this script's own user could end.
    """

    def remaining() -> set[Life]:
        lives, processes = _bearers(mark, users), all_processes()
        bearers = {p.pid for p in processes if (p.pid, p.started_ticks) in lives}
        groups = {p.pid for p in processes if bearers & {p.group, p.session}}
        return _with_descendants(bearers | groups, processes)

    own = [*one_user(os.geteuid()), *(range(uid, uid + 1) for uid in users)]
    return _stop(remaining, grace_s, own if users else None)


def _stop(look: Callable[[], Iterable[Life]], grace_s: float, users: Users | None) -> list[int]:
    """End what `look` finds and what comes to that meanwhile: one grace, and one deadline, for all of it."""
    tracked: set[Life] = set()

    def remaining() -> list[Life]:
        # Descendants that lose their parent while stopping would slip out of the family: keep those seen once. Each
        # with its start: children that live for moments walk through all pids within a grace, and what others start
        # meanwhile gets those.
        new = (life for life in look() if life not in tracked and life[0] != os.getpid())
        tracked.update(life for life in new if users is None or is_of(life[0], users))
        tracked.intersection_update([life for life in tracked if is_alive_still(life)])
        return sorted(tracked)

    def gone() -> bool:
        return not remaining()

    for life in remaining():
        send_signal(life, signal.SIGTERM)
    if clock.wait_until(gone, grace_s, _LOOK_S):
        return []
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while not gone() and time.monotonic() < deadline:
        for life in sorted(tracked):
            send_signal(life, signal.SIGKILL)
        clock.wait_until(gone, 0.2, _LOOK_S)
    return [pid for pid, _ in remaining()]


def send_signal(life: Life, number: signal.Signals) -> None:
    """Send a signal to this very process; nothing where it has ended, whoever has its pid now."""
    descriptor = _opened(life[0])
    try:
        # What lives now was opened before: a pid is given out again only after its process has ended.
        if not is_alive_still(life):
            return
        if descriptor is None:
            os.kill(life[0], number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(pid: int) -> int | None:
    """A descriptor of whatever process has the pid now; None where there is none, as with Python 3.8."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def start_detached(
    argv: Sequence[str],
    *,
    log: Path,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    user: str | None = None,
    mark: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own that outlives this one; its output goes to the end of `log`.

    With `user` it has that user's rights alone, before any of `env` can matter to a loader. With `mark` it can be
    found by `marked`. Output is lost rather than the start refused where `log` cannot be written.
    """
    if user:
        env = {**(os.environ if env is None else env), **users_environment(user)}
    if mark:
        env = {_MARK: mark, **(os.environ if env is None else env)}
        env[_MARK] = mark  # whatever `env` says, and in the first place, where it is looked for
    try:
        descriptor = root_files.appending(log)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=env,
            cwd=cwd,
            start_new_session=True,
            close_fds=True,
            preexec_fn=before_exec(user),
        )
    finally:
        os.close(descriptor)


def self_argv() -> list[str]:
    """The command that runs this very script again, whether it is a zipapp or the package."""
    bundle = Path(sys.argv[0])
    if bundle.suffix == ".pyz":
        return [sys.executable, *PYTHON_OPTIONS, str(bundle.absolute())]
    return [sys.executable, "-m", "tokenpeak.node"]


def start_again(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start this very script with other words, detached, in the caller's environment and from `/`."""
    return start_detached([*self_argv(), *words], log=log, env=dict(os.environ), cwd="/")


class Ran(NamedTuple):
    """Status and output of a command; status 127 if it cannot be started, 124 out of time, 125 with too much output."""

    status: int
    out: str
    err: str


def run(
    argv: Sequence[str],
    timeout_s: float = 30.0,
    env: dict[str, str] | None = None,
    user: str | None = None,
    given: bytes | None = None,
) -> Ran:
    """Run a command to its end, speaking English in UTF-8; its absence or slowness is an answer, not an exception.

    So is an output beyond MOST_OUTPUT_BYTES. With `user` it has that user's rights alone. `given` is its standard
    input, which is never on a disk and which that user can open by its name too.
    """
    # Plain C would keep a Python from starting whose packages lie in a folder with letters beyond ASCII.
    environment = dict(os.environ if env is None else env, LC_ALL="C.UTF-8", LANG="C.UTF-8")
    source = subprocess.DEVNULL if given is None else _in_memory(given)
    try:
        started = subprocess.Popen(
            list(argv),
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=user is not None,
            preexec_fn=before_exec(user),
        )
    except OSError as error:
        return Ran(127, "", f"{argv[0]}: {error.strerror}{remedy(error)}")
    finally:
        if given is not None:
            os.close(source)
    try:
        out, err = _output(started, timeout_s)
    except subprocess.TimeoutExpired:
        _leave(started)
        return Ran(124, "", f"{argv[0]} did not end within {timeout_s:g} s")
    if len(out) + len(err) > MOST_OUTPUT_BYTES:
        _leave(started)
        return Ran(125, "", f"{argv[0]} printed more than {MOST_OUTPUT_BYTES >> 20} MiB and was ended")
    return Ran(started.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def _in_memory(content: bytes) -> int:
    """A descriptor of an unnamed file in memory with this content, at its beginning."""
    descriptor = os.memfd_create("given")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _output(started: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, bytes]:
    """The output of a command to its end, or as soon as that is too much; TimeoutExpired if it does not end in time."""
    deadline = time.monotonic() + timeout_s
    assert started.stdout is not None
    assert started.stderr is not None
    pipes = {started.stdout: bytearray(), started.stderr: bytearray()}
    with selectors.DefaultSelector() as open_pipes:
        for pipe in pipes:
            open_pipes.register(pipe, selectors.EVENT_READ)
        while open_pipes.get_map() and sum(map(len, pipes.values())) <= MOST_OUTPUT_BYTES:
            left_s = deadline - time.monotonic()
            ready = open_pipes.select(left_s) if left_s > 0 else []
            if not ready and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(started.args, timeout_s)
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                pipes[key.fileobj] += data  # type: ignore[index]  # what was registered
                if not data:
                    open_pipes.unregister(key.fileobj)
        is_at_end = not open_pipes.get_map()
    if is_at_end:
        started.wait(max(0.0, deadline - time.monotonic()))
        for pipe in pipes:
            pipe.close()
    return bytes(pipes[started.stdout]), bytes(pipes[started.stderr])


def _leave(started: subprocess.Popen[bytes]) -> None:
    """Kill a command that took too long, and wait no longer for one that hangs in the kernel, as on a broken board."""
    started.kill()
    for pipe in (started.stdout, started.stderr):
        if pipe is not None:
            pipe.close()
    try:
        started.wait(KILLED_WITHIN_S)
    except subprocess.TimeoutExpired:
        return
