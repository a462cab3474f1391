"""`nvidia-smi` of the simulated node: the queries that TokenPeak asks, over what simulated engines hold and draw.

    --query-gpu=FIELDS | --query-compute-apps=FIELDS  --format=csv,noheader[,nounits] [-i GPU] [--loop-ms=MS]
    topo -m

Field names, units and messages are those of nvidia-smi 570, but for `total_energy_consumption`: there the counter is
NVML's alone, and this is where a simulated node shows it.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from zlib import crc32

from tokenpeak.sim.simulated_node import Devices, Holder, NodeState, devices, idle_power_w

MIB = 1024**2

_CLOCKS_MHZ = {"7.0": 1380, "7.5": 1590, "8.0": 1410, "8.6": 1695, "8.9": 2040, "9.0": 1980, "10.0": 1965}
"""Highest SM clock by compute capability."""
AMBIENT_C, RISE_C = 28.0, 40.0
"""Temperature of a board that draws nothing, and how much warmer it is at its TDP."""


@dataclass(frozen=True, kw_only=True)
class SimulatedGpu:
    """One board as it is now."""

    index: int
    devices: Devices
    holders: tuple[Holder, ...]
    energy_j: float

    @property
    def used_mib(self) -> int:
        """Memory that processes hold, and a little for the driver."""
        held = sum(holder.vram_bytes for holder in self.holders) // MIB
        return min(self.devices.gpu.usable_bytes // MIB, held + (4 if held else 1))

    @property
    def utilization(self) -> float:
        """Share of time with work on it, 0 to 1."""
        return min(1.0, sum(holder.utilization for holder in self.holders))

    @property
    def power_w(self) -> float:
        """Draw of the board."""
        tdp_w = self.devices.gpu.tdp_w
        return min(tdp_w, idle_power_w(tdp_w) + sum(holder.power_w for holder in self.holders))

    @property
    def temperature_c(self) -> int:
        """As the driver shows it."""
        return round(AMBIENT_C + RISE_C * self.power_w / self.devices.gpu.tdp_w)

    @property
    def clock_mhz(self) -> int:
        """SM clock: the highest while a process has a context, else the idle one."""
        return _CLOCKS_MHZ.get(self.devices.gpu.compute_capability, 1800) if self.holders else 210

    @property
    def uuid(self) -> str:
        """A name that stays."""
        a, b, c = (crc32(f"{self.devices.gpu.name} {self.index} {part}".encode()) for part in "abc")
        return f"GPU-{a:08x}-{b >> 16:04x}-{b & 0xFFFF:04x}-{c >> 16:04x}-{c & 0xFFFF:04x}{a:08x}"


def _mig(gpu: SimulatedGpu) -> str:
    return "Disabled" if gpu.devices.gpu.compute_capability in ("8.0", "9.0", "10.0") else "[N/A]"


GPU_FIELDS: Mapping[str, tuple[Callable[[SimulatedGpu], object], str]] = {
    "index": (lambda gpu: gpu.index, ""),
    "name": (lambda gpu: gpu.devices.gpu.name, ""),
    "uuid": (lambda gpu: gpu.uuid, ""),
    "driver_version": (lambda gpu: gpu.devices.driver, ""),
    "compute_cap": (lambda gpu: gpu.devices.gpu.compute_capability, ""),
    "mig.mode.current": (_mig, ""),
    "memory.total": (lambda gpu: gpu.devices.gpu.vram_bytes // MIB, "MiB"),
    "memory.used": (lambda gpu: gpu.used_mib, "MiB"),
    "power.draw": (lambda gpu: f"{gpu.power_w:.2f}", "W"),
    "power.limit": (lambda gpu: f"{gpu.devices.gpu.tdp_w:.2f}", "W"),
    "total_energy_consumption": (lambda gpu: int(gpu.energy_j * 1000), "mJ"),
    "utilization.gpu": (lambda gpu: round(100 * gpu.utilization), "%"),
    "temperature.gpu": (lambda gpu: gpu.temperature_c, ""),
    "clocks.sm": (lambda gpu: gpu.clock_mhz, "MHz"),
    "clocks_event_reasons.active": (lambda _: f"0x{0:016x}", ""),
}
"""Value and unit of each field."""

APP_FIELDS: Mapping[str, tuple[Callable[[SimulatedGpu, Holder], object], str]] = {
    "gpu_uuid": (lambda gpu, _: gpu.uuid, ""),
    "pid": (lambda _, holder: holder.pid, ""),
    "process_name": (lambda _, holder: holder.name, ""),
    "used_memory": (lambda _, holder: holder.vram_bytes // MIB, "MiB"),
}


def simulated_gpus(node: Devices, state: NodeState) -> list[SimulatedGpu]:
    """The boards as they are now."""
    holders = state.holders()
    since, now = state.since_unix_s(), time.time()
    gpus = []
    for index in range(node.count):
        own = node.of(index)
        here = tuple(holder for holder in holders if index in holder.gpus)
        energy_j = idle_power_w(own.gpu.tdp_w) * (now - since) + state.energy_above_idle(index, now)
        gpus.append(SimulatedGpu(index=index, devices=own, holders=here, energy_j=energy_j))
    return gpus


class SmiCommandError(Exception):
    """The command line is not understood; `status` is the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _QueryParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SmiCommandError(
            f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n{message}", 2
        )


def _parser() -> _QueryParser:
    parser = _QueryParser(prog="nvidia-smi", add_help=False, allow_abbrev=False)
    parser.add_argument("--query-gpu")
    parser.add_argument("--query-compute-apps")
    parser.add_argument("--format", default="")
    parser.add_argument("-i", "--id")
    parser.add_argument("--loop-ms", type=float)
    parser.add_argument("topology", nargs="?", choices=["topo"])
    parser.add_argument("-m", "--matrix", action="store_true")
    return parser


def _chosen(gpus: list[SimulatedGpu], wanted: str | None) -> list[SimulatedGpu]:
    """Those that `-i` names by index or UUID, several with commas between; all without."""
    if wanted is None:
        return gpus
    named = [gpu for word in wanted.split(",") for gpu in gpus if word in (str(gpu.index), gpu.uuid)]
    if not named:
        raise SmiCommandError("No devices were found", 6)
    return named


def _rows(query: argparse.Namespace, gpus: Sequence[SimulatedGpu]) -> list[str]:
    """The lines that answer a query."""
    if query.topology:
        return _topology(gpus)
    fields: Mapping[str, tuple[Callable[..., object], str]] = GPU_FIELDS if query.query_gpu else APP_FIELDS
    names = [name.strip() for name in (query.query_gpu or query.query_compute_apps or "").split(",")]
    for name in names:
        if name not in fields:
            raise SmiCommandError(f'Field "{name}" is not a valid field to query.\n', 2)
    each = [(gpu,) for gpu in gpus] if query.query_gpu else [(gpu, one) for gpu in gpus for one in gpu.holders]
    bare = "nounits" in query.format.split(",")
    return [", ".join(_cell(*fields[name], of, bare=bare) for name in names) for of in each]


def _cell(value: Callable[..., object], unit: str, of: tuple[object, ...], *, bare: bool) -> str:
    return f"{value(*of)}" if bare or not unit else f"{value(*of)} {unit}"


def _topology(gpus: Sequence[SimulatedGpu]) -> list[str]:
    """`topo -m`: the link between two boards, the same for each pair."""
    links = gpus[0].devices.links
    lines = ["\t" + "\t".join([*(f"GPU{gpu.index}" for gpu in gpus), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    for row in gpus:
        cells = [" X " if row is column else links for column in gpus]
        lines.append("\t".join([f"GPU{row.index}", *cells, cores, "0", "N/A"]))
    return [*lines, "", "Legend:", "", "  X    = Self"]


def main(argv: list[str] | None = None) -> int:
    """The command line; the exit status is nvidia-smi's."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    node = devices(dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    folder = os.environ.get("TOKENPEAK_SIM_DIR")
    try:
        query = _parser().parse_args(argv)
        if node.is_cpu or folder is None:
            raise SmiCommandError("No devices were found", 6)
        state = NodeState(Path(folder))
        due = time.monotonic()
        while True:
            gpus = _chosen(simulated_gpus(node, state), query.id)
            sys.stdout.write("".join(f"{line}\n" for line in _rows(query, gpus)))
            sys.stdout.flush()
            if query.loop_ms is None:
                return 0
            due += query.loop_ms / 1000
            time.sleep(max(0.0, due - time.monotonic()))
    except SmiCommandError as refused:
        print(refused)
        return refused.status
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
