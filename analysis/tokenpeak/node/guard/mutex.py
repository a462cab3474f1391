"""Mutex of the node: one command at a time changes it, and none keeps it from whoever must give the node back.

The lock is on the state folder itself, so that taking it writes nothing. Who holds it is what the kernel shows, which
needs no room on a disk and which nobody can forge. A holder that was stopped, frozen or hangs is ended once the node
must be given back; that is as safe as its crash, after which the record says all. One that works within its bounds is
waited for.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

from tokenpeak.node.guard import record as records
from tokenpeak.node.machine import clock, process, process_files
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import MOUNTS, command_line, control_group, shown_by_kernel
from tokenpeak.node.machine.state import State
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production import drain
from tokenpeak.node.production.manager import START_TIMEOUT_S, STOP_TIMEOUT_S
from tokenpeak.node.protocol.requests import ENGINE_STOP_S, PRODUCTION_READY_S

CODE = "busy"
SUSPENDED_S = 5.0
"""A holder that is stopped or frozen for so long does not go on by itself: no command stops its own process."""
MANAGERS_S = 3 * (STOP_TIMEOUT_S + START_TIMEOUT_S) + 300.0
"""For production's manager, which is tried three times, and for all else that has a limit of its own."""
_LOOK_S = 1.0
_POLL_S = 0.05


class MutexHolder(NamedTuple):
    """The process that has the mutex."""

    pid: int
    started_ticks: int
    command: str

    @property
    def text(self) -> str:
        """It in words."""
        return f"`{self.command}` (process {self.pid})"


def never() -> bool:
    """A command that ends no holder."""
    return False


@contextmanager
def exclusive(state: State, may_end: Callable[[], bool] = never) -> Iterator[None]:
    """Have the mutex; the kernel lets go when this process dies.

    Once `may_end` answers True, a holder that does not go on is ended. Raises ScriptError, which names the holder,
    where it does not let go.
    """
    descriptor = os.open(state.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _is_taken(descriptor):
            _await(state, descriptor, may_end)
        yield
    finally:
        os.close(descriptor)


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _await(state: State, descriptor: int, may_end: Callable[[], bool]) -> None:
    """Take the mutex when its holder lets go, or has been ended."""
    began = since = time.monotonic()
    suspended_since: float | None = None
    last_holder: MutexHolder | None = None
    while not clock.wait_until(lambda: _is_taken(descriptor), _LOOK_S, _POLL_S):
        now, holder = time.monotonic(), holder_of(state)
        if holder != last_holder:
            last_holder, since, suspended_since = holder, now, None
        is_suspended = holder is not None and _is_suspended(holder.pid)
        suspended_since = (suspended_since or now) if is_suspended else None
        is_suspended = suspended_since is not None and now - suspended_since >= SUSPENDED_S
        most_s = longest_s(state)
        is_stuck = is_suspended or now - since >= most_s
        if is_stuck and holder is not None and may_end() and _is_ended(state, holder):
            continue
        if is_stuck or now - began >= 2 * most_s:
            raise ScriptError(CODE, _refusal(holder, now - began, is_suspended=is_suspended))


def longest_s(state: State) -> float:
    """The longest that a command which works may have the mutex, by what the node's record or declaration allows."""
    record = records.read_if_possible(state) or {}
    try:
        drain_s = drain.longest_s(record["drain"] if "drain" in record else state.declaration().get("drain"))
    except ScriptError:
        drain_s = 0.0  # with such a declaration no command drains
    stop_s = float(record.get("engine_stop_s", ENGINE_STOP_S))
    ready_s = float(record.get("production_ready_s", PRODUCTION_READY_S))
    return MANAGERS_S + drain_s + stop_s + ready_s


def holder_of(state: State) -> MutexHolder | None:
    """Who has the mutex, of the processes of this script's user; None where nobody has, or it cannot be seen."""
    for pid in process_files.pids():
        if os.geteuid() in process_files.user_ids(pid) and _holds(pid, str(state.folder)):
            stat = process_files.stat_of(pid)
            if stat is not None:
                return MutexHolder(pid, stat.started_ticks, _command(pid))
    return None


def _holds(pid: int, folder: str) -> bool:
    """Whether a descriptor of the process is the folder's, locked."""
    try:
        numbers = [entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(_is_lock(pid, number, folder) for number in numbers)


def _is_lock(pid: int, number: str, folder: str) -> bool:
    try:
        leads_there = os.readlink(f"/proc/{pid}/fd/{number}") == folder
        return leads_there and b"FLOCK" in shown_by_kernel(pid, f"fdinfo/{number}")
    except OSError:
        return False  # it has ended, or let go, since


def _command(pid: int) -> str:
    """The command of the process, as its caller wrote it."""
    words = command_line(pid)
    script = next((place for place, word in enumerate(words) if word.endswith(".pyz")), None)
    if script is not None and len(words) > script + 1:
        return f"tokenpeak-node {shown_value(words[script + 1])}"
    return shown_value(words[0] if words else "")


def _is_suspended(pid: int) -> bool:
    """Whether a process was stopped, by a signal or a debugger, or is frozen with its control group."""
    stat = process_files.stat_of(pid)
    return stat is not None and (stat.state in "Tt" or _is_frozen(control_group(pid)))


def _is_frozen(group: str) -> bool:
    for mount in MOUNTS:
        try:
            events: Any = Path(mount, group.lstrip("/"), "cgroup.events").read_text().split("\n")
        except OSError:
            continue
        if "frozen 1" in events:
            return True
    return False


def _is_ended(state: State, holder: MutexHolder) -> bool:
    """Kill a holder that is the one which was looked at; False where it was not started for this state folder."""
    if str(state.folder) not in command_line(holder.pid):
        return False
    if holder_of(state) == holder:
        process.send_signal((holder.pid, holder.started_ticks), signal.SIGKILL)
    return True


def _refusal(holder: MutexHolder | None, waited_s: float, *, is_suspended: bool) -> str:
    who = holder.text if holder else "a process that this user cannot see"
    text = f"The node is in the hands of {who}, which "
    text += "was stopped or is frozen" if is_suspended else f"has not let go of it within {waited_s:.0f} s"
    return f"{text}: wait for the guard, or run `tokenpeak restore`, which ends it; else end it by hand."
