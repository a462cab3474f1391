"""The simulated node: its devices and the faults to play, by its environment, and which process holds which board.

`TOKENPEAK_SIM_FAULT` is a comma-separated list, each with its number where it has one:

    hang_at_start, oom_at_start, crash_at_start
    crash_after_requests:N   the engine's process dies of a CUDA error
    ignore_sigterm           only a kill ends it
    error_500:EVERY          of so many requests one is answered with status 500
    oom_under_load:SHARE     given more of the memory than this share, it runs out of it once several requests run
    damaged_answers:NATS     its log-probabilities are wrong by an error of this standard deviation

A folder has its state, which engines write and nvidia-smi reads:

    DIR/engines/PID.json   one record per process that holds VRAM, written ten times a second while it works
    DIR/totals.json        energy of processes that have ended, J per GPU above idle; since when the node runs

A record counts while its process lives. A process is known by its id and its start time, so that an id used again is
not taken for it.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpeak.errors import SpecError, suggestion
from tokenpeak.files import delete, write_atomically
from tokenpeak.predict.hardware import GpuFacts, cpu_facts, gpu_facts

if TYPE_CHECKING:
    from tokenpeak.predict.physics import StepTime


CUDA_ERROR = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"

_USUAL = {
    "hang_at_start": 1.0,
    "oom_at_start": 1.0,
    "crash_at_start": 1.0,
    "crash_after_requests": 10.0,
    "ignore_sigterm": 1.0,
    "error_500": 2.0,
    "oom_under_load": 0.93,
    "damaged_answers": 0.5,
}

Faults = Mapping[str, float]
"""The faults to play, each with its number."""
DRIVER = "570.172.08"
IDLE_SHARE = 0.12
"""Of its TDP, what a board draws with nothing on it."""
CONTEXT_SHARE = 0.06
WINDOW_S = 0.1


def faults(environ: Mapping[str, str] = os.environ) -> Faults:
    """The faults that the environment names. Raises SpecError for one that is not known."""
    played = {}
    for word in filter(None, environ.get("TOKENPEAK_SIM_FAULT", "").split(",")):
        name, colon, value = word.strip().partition(":")
        if name not in _USUAL:
            raise SpecError(f"TOKENPEAK_SIM_FAULT names {name!r}. {suggestion(name, _USUAL)}")
        played[name] = float(value) if colon else _USUAL[name]
    return played


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The node's devices. `indexes` are those that a process may use, and `gpu` is what the first of them is."""

    gpu: GpuFacts
    count: int
    indexes: tuple[int, ...]
    kinds: tuple[GpuFacts, ...] = ()
    """Facts of each of them, where they are not all alike."""
    links: str = ""
    """The link between two of them, as `nvidia-smi topo -m` shows it."""
    driver: str = DRIVER

    @property
    def is_cpu(self) -> bool:
        """True when there is no GPU."""
        return self.count == 0

    def of(self, index: int) -> "Devices":
        """The same node, as one of its devices sees it."""
        return replace(self, gpu=self.kinds[index]) if self.kinds else self

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor); (99, 0) where there is none to lack anything: a CPU, an AMD GPU."""
        major, _, minor = self.gpu.compute_capability.partition(".")
        return (int(major), int(minor or 0)) if major.isdigit() else (99, 0)


def devices(environ: Mapping[str, str] = os.environ) -> Devices:
    """The devices that `TOKENPEAK_SIM_GPU` (default L4) and `TOKENPEAK_SIM_GPU_COUNT` (default 1) name.

    Several names, with commas between, make a node of mixed boards; the last one is repeated. `CUDA_VISIBLE_DEVICES`
    limits those a process may use, as on a real node. `TOKENPEAK_SIM_LINKS` is what their topology shows between them,
    where it is not what such boards usually have, and `TOKENPEAK_SIM_DRIVER` their driver.
    """
    count = int(environ.get("TOKENPEAK_SIM_GPU_COUNT", "1"))
    if count == 0:
        return Devices(gpu=cpu_facts("CPU", 4, None), count=0, indexes=())
    named = [_board(word.strip()) for word in environ.get("TOKENPEAK_SIM_GPU", "NVIDIA L4").split(",")]
    kinds = (*named, *[named[-1]] * count)[:count]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    indexes = tuple(range(count))
    if visible is not None:
        indexes = tuple(int(word) for word in visible.split(",") if word.strip().isdigit() and int(word) < count)
    gpu = kinds[indexes[0] if indexes else 0]
    return Devices(
        gpu=gpu,
        count=count,
        indexes=indexes,
        kinds=kinds if len(named) > 1 else (),
        links=environ.get("TOKENPEAK_SIM_LINKS") or _links(gpu),
        driver=environ.get("TOKENPEAK_SIM_DRIVER") or DRIVER,
    )


def _board(name: str) -> GpuFacts:
    """The facts of a board; one that the hardware table lacks is played as an L4."""
    known = gpu_facts(name)
    if known is None:
        usual = gpu_facts("NVIDIA L4")
        assert usual is not None, "the hardware table has it"
        return replace(usual, name=name)
    return known


def _links(gpu: GpuFacts) -> str:
    """NVLink as its number of links, else the host bridge."""
    return f"NV{max(1, round(gpu.interconnect_bytes_per_s / 50e9))}" if gpu.interconnect == "nvlink" else "PHB"


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
class _Totals:
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
    """The folder. Every write is atomic; the totals is changed under a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._engines = folder / "engines"
        self._totals = folder / "totals.json"
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
        return live + self._read_totals().energy_j.get(str(gpu), 0.0)

    def since_unix_s(self) -> float:
        """When the node was first looked at."""
        with self._locked():
            totals = self._read_totals()
            write_atomically(self._totals, json.dumps(asdict(totals)), durable=False)
        return totals.since_unix_s

    def next_launch(self) -> int:
        """A number that grows with each launch on the node, from 0."""
        with self._locked():
            totals = self._read_totals()
            write_atomically(
                self._totals, json.dumps(asdict(replace(totals, launches=totals.launches + 1))), durable=False
            )
        return totals.launches

    def _settle(self, holder: Holder, now: float) -> None:
        totals = self._read_totals()
        energy = dict(totals.energy_j)
        for gpu in holder.gpus:
            energy[str(gpu)] = energy.get(str(gpu), 0.0) + holder.energy_at(now)
        settled = replace(totals, energy_j=energy)
        write_atomically(self._totals, json.dumps(asdict(settled)), durable=False)
        delete(self._engines / f"{holder.pid}.json")

    def _read_totals(self) -> _Totals:
        try:
            return _Totals(**json.loads(self._totals.read_text()))
        except FileNotFoundError:
            return _Totals(since_unix_s=time.time())

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

    def __init__(self, state: NodeState | None, tdp_w: float, gpus: tuple[int, ...]) -> None:
        self._state = state if gpus else None
        self._tdp_w = tdp_w
        self._gpus = gpus
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
