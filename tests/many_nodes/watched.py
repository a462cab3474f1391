"""What a command costs this machine, by the kernel alone: `watched.py RESULT.json COMMAND...`.

This process adopts what the command leaves behind (a subreaper), so that everything the command starts is in its tree.
Processor time is what the kernel counts of the command and its waited children, and of each adopted process. Memory is
the sum of PSS over the tree, at its peak. Load clients (`tokenpeak load --job …` with what they start) are apart; what
they used is read off the kernel's process accounting (acct(5), version 3) once they have ended: on a busy machine none
is seen often enough. Root alone may ask for that.
"""

import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

CPU_PERIOD_S = 0.15
MEMORY_PERIOD_S = 1.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36
RECORD = struct.Struct("<bbHIIIIIIf8H16s")
"""Of the accounting, for each process that ended."""
RECORD_TICKS_PER_S = 100
"""Of the times in it, whatever the kernel's own clock is."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The tree at one moment; processor time since the beginning, of processes that have ended too."""

    at_unix_s: float
    controller_cpu_s: float
    controller_bytes: int
    processes: int
    """Of the controller."""
    clients_cpu_s: float
    clients_bytes: int
    clients: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one command; `left` are the processes that it leaves running."""

    status: int
    wall_s: float
    controller_cpu_s: float
    clients_cpu_s: float
    samples: tuple[Sample, ...]
    left: tuple[str, ...]


class Accounting:
    """The processes that have ended since, by pid: their own processor time and their parent."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("rb")
        self._own_s: dict[int, float] = {}
        self._parent: dict[int, int] = {}

    def look(self) -> None:
        """Read what has been written since."""
        while len(data := self._file.read(RECORD.size)) == RECORD.size:
            _, _, _, _, _, _, pid, parent, _, _, user, system, *_ = RECORD.unpack(data)
            self._own_s[pid] = (_ticks(user) + _ticks(system)) / RECORD_TICKS_PER_S
            self._parent[pid] = parent
        self._file.seek(-len(data), os.SEEK_CUR)

    def has_ended(self, pid: int) -> bool:
        """Whether there is a record of the process."""
        return pid in self._own_s

    def tree_s(self, root: int) -> float:
        """Seconds of this process and of all that it started, as far as those have ended."""
        below: dict[int, list[int]] = {}
        for pid, parent in self._parent.items():
            below.setdefault(parent, []).append(pid)
        left, seconds = [root], 0.0
        seen: set[int] = set()
        while left:
            if (pid := left.pop()) not in seen:
                seen.add(pid)
                seconds += self._own_s.get(pid, 0.0)
                left += below.get(pid, [])
        return seconds


def _ticks(packed: int) -> int:
    """A number of 13 bits with an exponent of base 8 in the three above."""
    return (packed & 0x1FFF) << (3 * (packed >> 13))


@contextmanager
def accounting() -> Iterator[Accounting]:
    """The accounting of all of this machine's processes; OSError where this process may not ask for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "acct")
        file.touch()
        if libc.acct(os.fsencode(file)) != 0:
            raise OSError(ctypes.get_errno(), "The kernel gives no process accounting: run it as root.")
        try:
            yield Accounting(file)
        finally:
            libc.acct(None)


@dataclass
class Clients:
    """Processor time of the load clients seen so far, with what is below each."""

    ended: Accounting
    cpu_s: dict[int, float] = field(default_factory=dict)
    """By pid; of one that has ended, all that it used, which nobody may have seen while it lived."""
    settled: set[int] = field(default_factory=set)
    """Those that have ended, each after its workers."""

    def look(self, clients: dict[int, list[int]]) -> float:
        """Take in how they are now; the seconds of all that were ever seen."""
        for client, below in clients.items():
            if client in self.settled:
                continue
            self.cpu_s[client] = max(sum(map(cpu_of, (client, *below))), self.cpu_s.get(client, 0.0))
        self.ended.look()
        for client in self.cpu_s.keys() - self.settled:
            if self.ended.has_ended(client):
                self.cpu_s[client] = self.ended.tree_s(client)
                self.settled.add(client)
        return sum(self.cpu_s.values())


def stat(pid: int) -> list[int] | None:
    """The numbers of /proc/PID/stat from the third field on, the state as 0; None of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return [0, *map(int, fields[1:])]


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a process and of the children that it waited for."""
    found = stat(pid)
    return sum(found[11:15]) / TICKS_PER_S if found else 0.0


def words(pid: int) -> list[str]:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def pss_bytes(pid: int) -> int:
    """The proportional set size of a process."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def children(pid: int) -> list[int]:
    """The children of a process, whichever of its threads started them."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:
        return found
    return found


def is_client(pid: int) -> bool:
    """Whether this is a load client."""
    said = words(pid)
    return "load" in said[1:3] and "--job" in said


def walk(root: int) -> tuple[list[int], dict[int, list[int]]]:
    """What is below `root` without load clients, and each load client with what is below it."""
    controller: list[int] = []
    clients: dict[int, list[int]] = {}
    left: list[tuple[int, int | None]] = [(pid, None) for pid in children(root)]
    while left:
        pid, client = left.pop()
        if client is not None:
            clients[client].append(pid)
        elif is_client(pid):
            clients[pid], client = [], pid
        else:
            controller.append(pid)
        left += [(child, client) for child in children(pid)]
    return controller, clients


def reaped_cpu_s(root: int) -> tuple[float, int | None]:
    """Processor time of children that have ended, which are waited for; and the status of `root` if it is one."""
    cpu_s, status = 0.0, None
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        cpu_s += cpu_of(ended.si_pid)
        waited = os.waitstatus_to_exitcode(os.waitpid(ended.si_pid, 0)[1])
        if ended.si_pid == root:
            return cpu_s, waited
    return cpu_s, status


def watch(argv: list[str], ended: Accounting) -> Cost:
    """Run the command to its end, and what it cost."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this process cannot become a subreaper")
    seen, samples = Clients(ended), list[Sample]()
    began = time.monotonic()
    root = subprocess.Popen(argv).pid
    ended_cpu_s, status, memory_due = 0.0, None, began
    while status is None:
        now = time.monotonic()
        controller, clients = walk(os.getpid())
        clients_cpu_s = seen.look(clients)
        if now >= memory_due:
            samples.append(sample(controller, clients, ended_cpu_s, clients_cpu_s))
            memory_due = now + MEMORY_PERIOD_S
        time.sleep(max(0.0, CPU_PERIOD_S - (time.monotonic() - now)))
        more_s, status = reaped_cpu_s(root)
        ended_cpu_s += more_s
    wall_s = time.monotonic() - began
    controller, clients = walk(os.getpid())
    clients_cpu_s = seen.look(clients)
    return Cost(
        status=status,
        wall_s=wall_s,
        controller_cpu_s=ended_cpu_s + sum(map(cpu_of, everything(controller, clients))) - clients_cpu_s,
        clients_cpu_s=clients_cpu_s,
        samples=tuple(samples),
        left=tuple(" ".join(words(pid))[:120] for pid in [*controller, *clients]),
    )


def everything(controller: list[int], clients: dict[int, list[int]]) -> list[int]:
    """All processes of a tree."""
    return [*controller, *clients, *(pid for below in clients.values() for pid in below)]


def sample(controller: list[int], clients: dict[int, list[int]], ended_cpu_s: float, clients_cpu_s: float) -> Sample:
    """The tree now, of which so much processor time is ended processes' and load clients'."""
    loading = [pid for client, below in clients.items() for pid in (client, *below)]
    return Sample(
        at_unix_s=time.time(),
        controller_cpu_s=ended_cpu_s + sum(map(cpu_of, [*controller, *loading])) - clients_cpu_s,
        controller_bytes=sum(map(pss_bytes, controller)),
        processes=len(controller),
        clients_cpu_s=clients_cpu_s,
        clients_bytes=sum(map(pss_bytes, loading)),
        clients=len(clients),
    )


if __name__ == "__main__":
    with accounting() as ended_processes:
        found = watch(sys.argv[2:], ended_processes)
    Path(sys.argv[1]).write_text(json.dumps(asdict(found)))
    sys.exit(found.status if found.status >= 0 else 128 - found.status)
