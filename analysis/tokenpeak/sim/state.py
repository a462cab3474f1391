"""State of the simulated node: which process holds which GPU, in a folder that engines write and nvidia-smi reads.

    DIR/engines/PID.json   one record per process that holds VRAM, written ten times a second while it works
    DIR/ledger.json        energy of processes that have ended, J per GPU above idle; since when the node runs

A record counts while its process lives (and a little longer where the record says that its memory is released
slowly). A process is known by its id and its start time, so that an id used again is not taken for it.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tokenpeak.atomic import write_atomically
from tokenpeak.deletion import delete


@dataclass(frozen=True, kw_only=True)
class Holder:
    """What one process holds and draws, on each GPU of `gpus` alike."""

    pid: int
    process_started: str
    name: str
    gpus: tuple[int, ...]
    vram_bytes: int
    utilization: float = 0.0
    """Share of the last window in which the GPU worked, 0 to 1."""
    memory_utilization: float = 0.0
    power_w: float = 0.0
    """Power above the idle GPU's."""
    energy_j: float = 0.0
    """Energy above the idle GPU's since the process began, up to `written_at_unix_s`."""
    steady: bool = True
    """True when `power_w` goes on until the next record, so that a reader may extend `energy_j`."""
    written_at_unix_s: float = 0.0
    release_s: float = 0.0
    """Seconds for which the memory stays taken after the process has gone."""
    gone_at_unix_s: float | None = None
    temperature_c: float | None = None
    """Of each board at `written_at_unix_s`; None for a process that warms none."""
    slowed: bool = False
    """The GPU is too hot and its clock held back."""

    def energy_at(self, unix_s: float) -> float:
        """Energy above idle until `unix_s`, J."""
        if self.steady and self.gone_at_unix_s is None:
            return self.energy_j + self.power_w * max(0.0, unix_s - self.written_at_unix_s)
        return self.energy_j


@dataclass(frozen=True, kw_only=True)
class _Ledger:
    """What outlives the processes, by GPU index: energy, and how warm a board was, and when, as the last one left."""

    since_unix_s: float
    launches: int = 0
    energy_j: dict[str, float] = field(default_factory=dict)
    warmth: dict[str, tuple[float, float]] = field(default_factory=dict)


def process_started(pid: int) -> str | None:
    """When a process began, in clock ticks since the machine did; None for none, or a zombie, which holds nothing."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


class NodeState:
    """The folder. Every write is atomic; the ledger is changed under a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._engines = folder / "engines"
        self._ledger = folder / "ledger.json"
        self._engines.mkdir(parents=True, exist_ok=True)

    def write(self, holder: Holder) -> None:
        """Put a process's record in place of its last one."""
        write_atomically(self._engines / f"{holder.pid}.json", json.dumps(asdict(holder)), durable=False)

    def remove(self, pid: int) -> None:
        """Take the record of a process that ends away, keeping its energy."""
        with self._locked():
            holder = self._read(self._engines / f"{pid}.json")
            if holder is not None:
                self._settle(holder, time.time())

    def holders(self) -> list[Holder]:
        """Those that hold VRAM now. Records of processes that have gone are settled on the way."""
        now = time.time()
        found = []
        with self._locked():
            for path in sorted(self._engines.glob("*.json")):
                holder = self._read(path)
                if holder is None:
                    continue
                if holder.gone_at_unix_s is None and process_started(holder.pid) != holder.process_started:
                    holder = replace(holder, gone_at_unix_s=now, power_w=0.0, utilization=0.0, memory_utilization=0.0)
                    self.write(holder)
                if holder.gone_at_unix_s is None or now < holder.gone_at_unix_s + holder.release_s:
                    found.append(holder)
                else:
                    self._settle(holder, now)
        return found

    def vram_held(self, gpu: int) -> int:
        """Bytes that other processes hold on a GPU."""
        return sum(holder.vram_bytes for holder in self.holders() if gpu in holder.gpus and holder.pid != os.getpid())

    def energy_above_idle(self, gpu: int, unix_s: float) -> float:
        """Energy that all processes, ended ones too, took on a GPU above its idle power, J."""
        live = sum(holder.energy_at(unix_s) for holder in self.holders() if gpu in holder.gpus)
        return live + self._read_ledger().energy_j.get(str(gpu), 0.0)

    def warmth(self, gpu: int) -> tuple[float, float] | None:
        """How warm a board was, and when, by the newest that is known; None for one that was never used."""
        holders = [holder for holder in self.holders() if gpu in holder.gpus]
        known = [(each.temperature_c, each.written_at_unix_s) for each in holders if each.temperature_c is not None]
        before = self._read_ledger().warmth.get(str(gpu))
        known += [before] if before is not None else []
        return max(known, key=lambda seen: seen[1], default=None)

    def since_unix_s(self) -> float:
        """When the node was first looked at."""
        with self._locked():
            ledger = self._read_ledger()
            write_atomically(self._ledger, json.dumps(asdict(ledger)), durable=False)
        return ledger.since_unix_s

    def next_launch(self) -> int:
        """A number that grows with each launch on the node, from 0."""
        with self._locked():
            ledger = self._read_ledger()
            write_atomically(
                self._ledger, json.dumps(asdict(replace(ledger, launches=ledger.launches + 1))), durable=False
            )
        return ledger.launches

    def _settle(self, holder: Holder, now: float) -> None:
        ledger = self._read_ledger()
        energy, warmth = dict(ledger.energy_j), dict(ledger.warmth)
        for gpu in holder.gpus:
            energy[str(gpu)] = energy.get(str(gpu), 0.0) + holder.energy_at(now)
            if holder.temperature_c is not None:
                warmth[str(gpu)] = (holder.temperature_c, holder.written_at_unix_s)
        settled = replace(ledger, energy_j=energy, warmth=warmth)
        write_atomically(self._ledger, json.dumps(asdict(settled)), durable=False)
        delete(self._engines / f"{holder.pid}.json")

    def _read_ledger(self) -> _Ledger:
        try:
            return _Ledger(**json.loads(self._ledger.read_text()))
        except FileNotFoundError:
            return _Ledger(since_unix_s=time.time())

    @staticmethod
    def _read(path: Path) -> Holder | None:
        try:
            raw = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return Holder(**{**raw, "gpus": tuple(raw["gpus"])})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
