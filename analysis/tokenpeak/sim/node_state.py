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
from typing import TYPE_CHECKING

from tokenpeak.files import delete, write_atomically

if TYPE_CHECKING:
    from tokenpeak.predict.physics import StepTime
    from tokenpeak.sim.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Memory and power of one process, on each GPU of `gpus` alike."""

    pid: int
    process_started: str
    name: str
    gpus: tuple[int, ...]
    vram_bytes: int
    utilization: float = 0.0
    """Share of the last window in which the GPU worked, 0 to 1."""
    power_w: float = 0.0
    """Power above the idle GPU's."""
    energy_j: float = 0.0
    """Energy above the idle GPU's since the process began, up to `written_at_unix_s`."""
    steady: bool = True
    """True when `power_w` goes on until the next record, so that a reader may extend `energy_j`."""
    written_at_unix_s: float = 0.0

    def energy_at(self, unix_s: float) -> float:
        """Energy above idle until `unix_s`, J."""
        if self.steady:
            return self.energy_j + self.power_w * max(0.0, unix_s - self.written_at_unix_s)
        return self.energy_j


@dataclass(frozen=True, kw_only=True)
class _Ledger:
    """Energy by GPU index of processes that have ended."""

    since_unix_s: float
    launches: int = 0
    energy_j: dict[str, float] = field(default_factory=dict)


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
        living = []
        with self._locked():
            for path in sorted(self._engines.glob("*.json")):
                holder = self._read(path)
                if holder is not None and process_started(holder.pid) == holder.process_started:
                    living.append(holder)
                elif holder is not None:
                    self._settle(replace(holder, steady=False), now)
        return living

    def vram_held(self, gpu: int) -> int:
        """Bytes that other processes hold on a GPU."""
        return sum(holder.vram_bytes for holder in self.holders() if gpu in holder.gpus and holder.pid != os.getpid())

    def energy_above_idle(self, gpu: int, unix_s: float) -> float:
        """Energy that all processes, ended ones too, took on a GPU above its idle power, J."""
        live = sum(holder.energy_at(unix_s) for holder in self.holders() if gpu in holder.gpus)
        return live + self._read_ledger().energy_j.get(str(gpu), 0.0)

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
        energy = dict(ledger.energy_j)
        for gpu in holder.gpus:
            energy[str(gpu)] = energy.get(str(gpu), 0.0) + holder.energy_at(now)
        settled = replace(ledger, energy_j=energy)
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


IDLE_SHARE = 0.12
"""Of its TDP, what a board draws with nothing on it."""


CONTEXT_SHARE = 0.06
WINDOW_S = 0.1


def idle_power_w(tdp_w: float) -> float:
    """Power of a board with nothing on it."""
    return tdp_w * IDLE_SHARE


def step_power_w(tdp_w: float, step: "StepTime") -> float:
    """Power of a board during a step."""
    if step.total_s <= 0:
        return tdp_w * (IDLE_SHARE + CONTEXT_SHARE)
    memory = min(1.0, (step.weights_s + step.kv_s) / step.total_s)
    arithmetic = min(1.0, step.compute_s / step.total_s)
    return tdp_w * min(0.97, 0.35 + 0.30 * memory + 0.55 * arithmetic)


class Meter:
    """Adds up steps and writes the process's record, at most ten times a second while there is work."""

    def __init__(self, state: NodeState | None, settings: "Settings") -> None:
        self._state = state if settings.gpus else None
        self._tdp_w = settings.devices.gpu.tdp_w
        self._gpus = settings.gpus
        self._pid = os.getpid()
        self._started = process_started(self._pid) or ""
        self._vram_bytes = 0
        self._energy_j = 0.0
        self._busy_s = 0.0
        self._above_j = 0.0
        self._window_from = time.time()
        self._context_w = self._tdp_w * CONTEXT_SHARE
        self._base_w = 0.0

    def hold(self, vram_bytes: int) -> None:
        """Take this much memory on each GPU from now on, and be there."""
        self._settle_window()
        self._vram_bytes = vram_bytes
        self._base_w = self._context_w
        self._rest()

    def worked(self, step: "StepTime", duration_s: float) -> None:
        """A step that took `duration_s` has ended."""
        if self._state is None:
            return
        self._busy_s += duration_s
        busy_w = step_power_w(self._tdp_w, step) - idle_power_w(self._tdp_w)
        self._above_j += duration_s * (busy_w - self._base_w)
        if time.time() - self._window_from >= WINDOW_S:
            self._write(steady=False)

    def begins(self) -> None:
        """Work begins after a pause: what was drawn in the pause is settled."""
        if self._state is not None:
            self._settle_window()
            self._write(steady=False)

    def idle(self) -> None:
        """There is nothing to do until `begins`."""
        if self._state is not None:
            self._write(steady=False)
            self._rest()

    def leave(self) -> None:
        """The process ends and gives its memory back."""
        if self._state is not None:
            self._settle_window()
            self._write(steady=False)
            self._state.remove(self._pid)

    def _rest(self) -> None:
        """There is nothing to do from now on."""
        if self._state is not None:
            self._write(steady=True)

    def _settle_window(self) -> tuple[float, float]:
        now = time.time()
        window_s = max(1e-9, now - self._window_from)
        power_w = self._base_w + self._above_j / window_s
        self._energy_j += power_w * window_s
        utilization = min(1.0, self._busy_s / window_s)
        self._busy_s = self._above_j = 0.0
        self._window_from = now
        return power_w, utilization

    def _write(self, *, steady: bool) -> None:
        if self._state is None:
            return
        power_w, utilization = (self._base_w, 0.0) if steady else self._settle_window()
        self._state.write(
            Holder(
                pid=self._pid,
                process_started=self._started,
                name="VLLM::EngineCore",
                gpus=self._gpus,
                vram_bytes=self._vram_bytes,
                utilization=utilization,
                power_w=power_w,
                energy_j=self._energy_j,
                steady=steady,
                written_at_unix_s=self._window_from,
            )
        )
