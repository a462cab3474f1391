"""Files of /proc about other processes: bounded in bytes, and in time where the process can have its readers wait.

A process that holds the lock of its own memory, by a page of a file system that its user serves, delays whoever reads
its environment or arguments for as long as it likes. Such a reader can be killed, but cannot return: so a thread waits
in its place, which ends with this process.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Callable, Collection, NamedTuple

IsMember = Callable[[int], bool]
"""Whether a process, by its pid, belongs to something."""
MOUNTS = tuple(Path("/sys/fs/cgroup", name) for name in ("", "systemd", "unified"))
"""Where systemd's hierarchy of control groups is."""
MOST_SHOWN_BYTES = 8 << 20
"""Of a process's environment or arguments: the kernel starts none with more, but one may show any memory there."""
ONE_WITHIN_S = 0.5
"""A process shows its memory in microseconds; one that is starting on a busy machine may take longer."""
ALL_WITHIN_S = 2.0
_PART_BYTES = 1 << 16

_delayed: dict[int, threading.Thread] = {}
"""By pid, the readers that wait still."""


def shown_by_kernel(pid: int, name: str, most: int = MOST_SHOWN_BYTES) -> bytes:
    """A file of a process as the kernel shows it, up to a bound; read plainly, since it is of all processes."""
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(descriptor, _PART_BYTES)]
        # The kernel gives less than was asked for at the end only.
        while len(parts[-1]) == _PART_BYTES and len(parts) * _PART_BYTES < most:
            parts.append(os.read(descriptor, _PART_BYTES))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def shown_in_time(pids: Collection[int], name: str, most: int = MOST_SHOWN_BYTES) -> dict[int, bytes]:
    """`environ` or `cmdline` of these processes, without those that have ended or do not show it within the limits."""
    for pid, waiting in list(_delayed.items()):
        if not waiting.is_alive():
            del _delayed[pid]
    left = [pid for pid in pids if pid not in _delayed]
    deadline = time.monotonic() + ALL_WITHIN_S
    shown: dict[int, bytes] = {}
    while left and time.monotonic() < deadline:
        reader = _Reader(left, name, most)
        stands_at = -1
        # One that only waits for a processor is not left: an engine that is not seen would be taken for ended.
        while reader.is_alive() and (reader.place != stands_at or reader.is_runnable()):
            stands_at = reader.place
            reader.join(ONE_WITHIN_S)
        shown.update(reader.shown.copy())
        if not reader.is_alive():
            break
        place = reader.place
        _delayed[left[place]] = reader
        reader.is_left = True
        left = left[place + 1 :]
    return shown


class Stat(NamedTuple):
    """The part of /proc/PID/stat that identifies and groups a process."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started_ticks: int
    threads: int = 1


def parse_stat(raw: str) -> Stat:
    """A line of /proc/PID/stat; the name in parentheses may hold anything, closing parentheses too."""
    head, _, tail = raw.rpartition(")")
    fields = tail.split()
    return Stat(
        pid=int(head.split("(", 1)[0]),
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started_ticks=int(fields[19]),
        threads=int(fields[17]),
    )


def stat_of(pid: int) -> Stat | None:
    """The process as the kernel shows it; None when it is gone or only a zombie is left.

    One whose first thread has ended looks like a zombie, and goes on in the others.
    """
    try:
        stat = parse_stat(shown_by_kernel(pid, "stat").decode(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.state in "ZX" and stat.threads < 2 else stat


def all_processes() -> list[Stat]:
    """Every living process that this one can see."""
    stats = (stat_of(pid) for pid in pids())
    return [process for process in stats if process is not None]


def pids() -> list[int]:
    """Those of all processes that this one can see."""
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def user_ids(pid: int) -> set[int]:
    """The real, effective, saved and file-system user of a process: one that was started set-uid has several.

    By its status: the owner of its folder in /proc is root for every process that allows no dump of itself.
    """
    return set(ordered_user_ids(pid))


def ordered_user_ids(pid: int) -> list[int]:
    """The same in that order; empty when the process has ended."""
    try:
        # No other line has that: a process's name is shown with its line breaks escaped.
        _, _, after = shown_by_kernel(pid, "status").partition(b"\nUid:")
    except OSError:
        return []
    return [int(word) for word in after.partition(b"\n")[0].split()]


def command_line(pid: int) -> list[str]:
    """The arguments of a process; none of one that has ended, that does not show them, or of the kernel's."""
    return command_lines([pid]).get(pid, [])


def command_lines(pids: Collection[int]) -> dict[int, list[str]]:
    """The arguments of each of these processes that shows some."""
    raw = shown_in_time(pids, "cmdline")
    return {pid: text.decode(errors="replace").rstrip("\0").split("\0") for pid, text in raw.items() if text}


class _Reader(threading.Thread):
    """Reads one process after another, until it is left at one that delays it."""

    def __init__(self, pids: list[int], name: str, most: int) -> None:
        super().__init__(daemon=True)
        self.shown: dict[int, bytes] = {}
        self.place = 0
        self.is_left = False
        self._wanted = (pids, name, most)
        try:
            self.start()
        except RuntimeError:  # no thread is to be had: production must come back all the same
            self.run()

    def is_runnable(self) -> bool:
        """Whether nothing but other work on this machine keeps it from going on."""
        try:
            shown = shown_by_kernel(os.getpid(), f"task/{self.native_id}/stat")
        except OSError:
            return False
        return shown.rpartition(b")")[2].split()[:1] == [b"R"]

    def run(self) -> None:
        pids, name, most = self._wanted
        for place, pid in enumerate(pids):
            if self.is_left:
                return
            self.place = place
            try:
                self.shown[pid] = shown_by_kernel(pid, name, most)
            except OSError:
                continue


def in_control_group(group: str) -> IsMember:
    """Whether a process is in a control group or below it; none is in an empty one."""

    def is_member(pid: int) -> bool:
        if not group.strip("/"):
            return False
        found = control_group(pid)
        return found == group or found.startswith(group.rstrip("/") + "/") or pid in _listed(group)

    return is_member


def _listed(group: str) -> set[int]:
    """The processes that the mounted hierarchy lists below a control group, in whatever namespace this runs."""
    listed: set[int] = set()
    for mount in MOUNTS:
        for members in (mount / group.lstrip("/")).rglob("cgroup.procs"):
            try:
                listed |= {int(line) for line in members.read_text().split()}
            except OSError:
                continue
    return listed


def control_group(pid: int) -> str:
    """The path of a process's control group, by systemd's hierarchy or the unified one; empty when it has ended.

    Where there are both, systemd keeps its groups in one of them, and everything is at the other's root.
    """
    rows = [line.split(":", 2) for line in _lines(pid, "cgroup")]
    own = [path for number, controllers, path in rows if number == "0" or controllers == "name=systemd"]
    return next((path for path in own if path != "/"), own[0] if own else "")


def program(pid: int) -> str | None:
    """The file that a process runs; None where that is hidden."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def _lines(pid: int, name: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace").splitlines()
    except OSError:
        return []
