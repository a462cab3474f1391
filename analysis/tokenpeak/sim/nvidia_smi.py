"""The simulated node's `nvidia-smi`: the real one's command line, over the state that simulated engines write.

    --query-gpu=FIELDS | --query-compute-apps=FIELDS  --format=csv[,noheader][,nounits] [-i GPU] [-l S | -lms MS]
    -L      topo -m      (nothing: the table)

Fields are in boards.py; messages are those of nvidia-smi 570.
"""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from zlib import crc32

from tokenpeak.sim.boards import IDLE_SHARE, Holder, NodeState, after_c, idle_power_w, resting_c
from tokenpeak.sim.devices import Devices, devices

CUDA = "12.8"
MIB = 1024**2

_CLOCKS_MHZ = {"7.0": (1380, 877), "7.5": (1590, 5001), "8.0": (1410, 1593), "8.6": (1695, 6251), "8.9": (2040, 6251),
               "9.0": (1980, 2619), "10.0": (1965, 3996)}  # fmt: skip
"""Highest SM and memory clocks by compute capability."""
AVERAGED_S = 1.0


@dataclass(frozen=True, kw_only=True)
class SimulatedGpu:
    """One board as it is now."""

    index: int
    devices: Devices
    holders: tuple[Holder, ...]
    energy_j: float
    celsius: float = resting_c(IDLE_SHARE)
    average_w: float | None = None
    """Mean draw over the last second, where somebody went on looking."""

    @property
    def total_mib(self) -> int:
        """VRAM."""
        return self.devices.gpu.vram_bytes // MIB

    @property
    def reserved_mib(self) -> int:
        """What the driver keeps."""
        return (self.devices.gpu.vram_bytes - self.devices.gpu.usable_bytes) // MIB

    @property
    def used_mib(self) -> int:
        """What processes hold, and a little for the driver."""
        held = sum(holder.vram_bytes for holder in self.holders) // MIB
        return min(self.total_mib - self.reserved_mib, held + (4 if held else 1))

    @property
    def utilization(self) -> float:
        """Share of time with work on it, 0 to 1."""
        return min(1.0, sum(holder.utilization for holder in self.holders))

    @property
    def power_w(self) -> float:
        """Draw of the board."""
        idle = idle_power_w(self.devices.gpu.tdp_w)
        return min(self.devices.power_limit_w, idle + sum(holder.power_w for holder in self.holders))

    @property
    def shown_w(self) -> float:
        """What `power.draw` says: from Ampere on, but for GA100, the mean over a second."""
        looks_back = self.devices.gpu.compute_capability not in ("7.0", "7.5", "8.0")
        return self.average_w if looks_back and self.average_w is not None else self.power_w

    @property
    def temperature_c(self) -> int:
        """As the driver shows it."""
        return round(self.celsius)

    @property
    def clocks_mhz(self) -> tuple[int, int]:
        """SM and memory clock: the highest while a process has a context and it is not too hot, else the idle ones."""
        highest = self.max_clocks_mhz
        if not self.holders:
            return 210, highest[1] if self.hbm else 405
        return (round(0.7 * highest[0]), highest[1]) if self.slowed else highest

    @property
    def slowed(self) -> bool:
        """It is too hot."""
        return any(holder.slowed for holder in self.holders)

    @property
    def max_clocks_mhz(self) -> tuple[int, int]:
        """The highest SM and memory clock."""
        return _CLOCKS_MHZ.get(self.devices.gpu.compute_capability, (1800, 5000))

    @property
    def hbm(self) -> bool:
        """HBM keeps its clock when idle."""
        return self.devices.gpu.compute_capability in ("7.0", "8.0", "9.0", "10.0")

    @property
    def uuid(self) -> str:
        """A name that stays."""
        a, b, c = (crc32(f"{self.devices.gpu.name} {self.index} {part}".encode()) for part in "abc")
        return f"GPU-{a:08x}-{b >> 16:04x}-{b & 0xFFFF:04x}-{c >> 16:04x}-{c & 0xFFFF:04x}{a:08x}"

    @property
    def bus_id(self) -> str:
        """Where it is plugged in."""
        return f"00000000:{self.index + 1:02X}:00.0"


def _mib(value: float) -> tuple[str, str]:
    return f"{int(value)}", "MiB"


def _w(value: float) -> tuple[str, str]:
    return f"{value:.2f}", "W"


def _plain(value: object) -> tuple[str, str]:
    return str(value), ""


GPU_FIELDS: Mapping[str, Callable[[SimulatedGpu], tuple[str, str]]] = {
    "timestamp": lambda _: _plain(datetime.now().astimezone().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]),
    "driver_version": lambda gpu: _plain(gpu.devices.driver),
    "count": lambda gpu: _plain(gpu.devices.count),
    "name": lambda gpu: _plain(gpu.devices.gpu.name),
    "gpu_name": lambda gpu: _plain(gpu.devices.gpu.name),
    "serial": lambda _: _plain("[N/A]"),
    "uuid": lambda gpu: _plain(gpu.uuid),
    "gpu_uuid": lambda gpu: _plain(gpu.uuid),
    "pci.bus_id": lambda gpu: _plain(gpu.bus_id),
    "index": lambda gpu: _plain(gpu.index),
    "persistence_mode": lambda _: _plain("Enabled"),
    "pstate": lambda gpu: _plain("P0" if gpu.holders or gpu.hbm else "P8"),
    "fan.speed": lambda _: _plain("[N/A]"),
    "memory.total": lambda gpu: _mib(gpu.total_mib),
    "memory.reserved": lambda gpu: _mib(gpu.reserved_mib),
    "memory.used": lambda gpu: _mib(gpu.used_mib),
    "memory.free": lambda gpu: _mib(gpu.total_mib - gpu.reserved_mib - gpu.used_mib),
    "compute_mode": lambda _: _plain("Default"),
    "compute_cap": lambda gpu: _plain(gpu.devices.gpu.compute_capability),
    "utilization.gpu": lambda gpu: (f"{round(100 * gpu.utilization)}", "%"),
    "utilization.memory": lambda gpu: (
        f"{round(100 * min(1.0, sum(holder.memory_utilization for holder in gpu.holders)))}",
        "%",
    ),
    "ecc.mode.current": lambda gpu: _plain("Enabled" if gpu.hbm else "Disabled"),
    "ecc.mode.pending": lambda gpu: _plain("Enabled" if gpu.hbm else "Disabled"),
    "mig.mode.current": lambda gpu: _plain(_mig(gpu)),
    "mig.mode.pending": lambda gpu: _plain(_mig(gpu)),
    "temperature.gpu": lambda gpu: _plain(gpu.temperature_c),
    "temperature.memory": lambda gpu: _plain(gpu.temperature_c + 6 if gpu.hbm else "N/A"),
    "power.management": lambda _: _plain("Enabled"),
    "power.draw": lambda gpu: _w(gpu.shown_w),
    "power.draw.average": lambda gpu: _w(gpu.average_w or gpu.power_w),
    "power.draw.instant": lambda gpu: _w(gpu.power_w),
    "power.limit": lambda gpu: _w(gpu.devices.power_limit_w),
    "enforced.power.limit": lambda gpu: _w(gpu.devices.power_limit_w),
    "power.default_limit": lambda gpu: _w(gpu.devices.gpu.tdp_w),
    "power.min_limit": lambda gpu: _w(gpu.devices.gpu.tdp_w / 4),
    "power.max_limit": lambda gpu: _w(gpu.devices.gpu.tdp_w),
    "total_energy_consumption": lambda gpu: (f"{int(gpu.energy_j * 1000)}", "mJ"),
    "clocks.current.sm": lambda gpu: (f"{gpu.clocks_mhz[0]}", "MHz"),
    "clocks.sm": lambda gpu: (f"{gpu.clocks_mhz[0]}", "MHz"),
    "clocks.gr": lambda gpu: (f"{gpu.clocks_mhz[0]}", "MHz"),
    "clocks.current.graphics": lambda gpu: (f"{gpu.clocks_mhz[0]}", "MHz"),
    "clocks.mem": lambda gpu: (f"{gpu.clocks_mhz[1]}", "MHz"),
    "clocks.current.memory": lambda gpu: (f"{gpu.clocks_mhz[1]}", "MHz"),
    "clocks.max.sm": lambda gpu: (f"{gpu.max_clocks_mhz[0]}", "MHz"),
    "clocks.max.mem": lambda gpu: (f"{gpu.max_clocks_mhz[1]}", "MHz"),
    "clocks_throttle_reasons.active": lambda gpu: _plain(_reasons(gpu)),
    "clocks_event_reasons.active": lambda gpu: _plain(_reasons(gpu)),
    "clocks_event_reasons.sw_power_cap": lambda _: _plain("Not Active"),
    "clocks_event_reasons.hw_thermal_slowdown": lambda gpu: _plain("Active" if gpu.slowed else "Not Active"),
    "clocks_event_reasons.sw_thermal_slowdown": lambda _: _plain("Not Active"),
    "pcie.link.gen.current": lambda gpu: _plain(4 if gpu.holders else 1),
    "pcie.link.gen.max": lambda _: _plain(4),
    "pcie.link.width.current": lambda _: _plain(16),
    "pcie.link.width.max": lambda _: _plain(16),
    "vbios_version": lambda _: _plain("SIM.00.00.00.01"),
    "display_active": lambda _: _plain("Disabled"),
    "accounting.mode": lambda _: _plain("Disabled"),
}

APP_FIELDS: Mapping[str, Callable[[SimulatedGpu, Holder], tuple[str, str]]] = {
    "timestamp": lambda gpu, _: GPU_FIELDS["timestamp"](gpu),
    "gpu_name": lambda gpu, _: _plain(gpu.devices.gpu.name),
    "gpu_bus_id": lambda gpu, _: _plain(gpu.bus_id),
    "gpu_serial": lambda _gpu, _: _plain("[N/A]"),
    "gpu_uuid": lambda gpu, _: _plain(gpu.uuid),
    "pid": lambda _, holder: _plain(holder.pid),
    "process_name": lambda _, holder: _plain(holder.name),
    "name": lambda _, holder: _plain(holder.name),
    "used_gpu_memory": lambda _, holder: _mib(holder.vram_bytes // MIB),
    "used_memory": lambda _, holder: _mib(holder.vram_bytes // MIB),
}


def _reasons(gpu: SimulatedGpu) -> str:
    return f"0x{0x40 if gpu.slowed else 0:016x}"


def _mig(gpu: SimulatedGpu) -> str:
    return "Disabled" if gpu.devices.gpu.compute_capability in ("8.0", "9.0", "10.0") else "[N/A]"


class Looks:
    """What was seen of the boards' energy within the last second or so, for the mean of their power."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[float, float]]] = {}

    def average_w(self, index: int, unix_s: float, energy_j: float) -> float | None:
        """Mean power since the last look that is a second old, or the oldest one; None at the first."""
        seen = self._seen.setdefault(index, deque())
        seen.append((unix_s, energy_j))
        while len(seen) > 2 and seen[1][0] <= unix_s - AVERAGED_S:
            seen.popleft()
        begun_s, begun_j = seen[0]
        return (energy_j - begun_j) / (unix_s - begun_s) if unix_s > begun_s else None


def boards(node: Devices, state: NodeState, looks: Looks | None = None) -> list[SimulatedGpu]:
    """The boards as they are now."""
    holders = state.holders()
    since, now = state.since_unix_s(), time.time()
    energies = [
        idle_power_w(node.of(index).gpu.tdp_w) * (now - since) + state.energy_above_idle(index, now)
        for index in range(node.count)
    ]
    found = [
        SimulatedGpu(
            index=index,
            devices=node.of(index),
            holders=tuple(holder for holder in holders if index in holder.gpus),
            energy_j=energy_j,
            average_w=looks.average_w(index, now, energy_j) if looks is not None else None,
        )
        for index, energy_j in enumerate(energies)
    ]
    return [replace(board, celsius=_celsius(board, state, now)) for board in found]


def _celsius(board: SimulatedGpu, state: NodeState, unix_s: float) -> float:
    """How warm the board is: on its way from what was known last to where its power brings it."""
    share = board.power_w / board.devices.gpu.tdp_w
    last = state.warmth(board.index)
    return resting_c(share) if last is None else after_c(last[0], share, unix_s - last[1])


class SmiCommandError(Exception):
    """The command line is not understood; `status` is the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def chosen(found: list[SimulatedGpu], wanted: str | None) -> list[SimulatedGpu]:
    """Those that `-i` names: by index, UUID or bus id, several with commas between; all without."""
    if wanted is None:
        return found
    named: list[SimulatedGpu] = []
    for word in wanted.split(","):
        matching = [gpu for gpu in found if word in (str(gpu.index), gpu.uuid, gpu.bus_id)]
        if not matching:
            raise SmiCommandError("No devices were found", 6)
        named += matching
    return named


def _csv(names: list[str], rows: list[list[tuple[str, str]]], options: set[str]) -> list[str]:
    lines = []
    if "noheader" not in options:
        units = [next((row[column][1] for row in rows), "") for column in range(len(names))]
        heads = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True)]
        lines.append(", ".join(heads))
    bare = "nounits" in options
    lines += [", ".join(value if bare or not unit else f"{value} {unit}" for value, unit in row) for row in rows]
    return lines


def _fields(asked: str, known: Mapping[str, object]) -> list[str]:
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise SmiCommandError(f'Field "{name}" is not a valid field to query.\n', 2)
    return names


def _query_gpu(asked: str, options: set[str], shown: list[SimulatedGpu]) -> list[str]:
    names = _fields(asked, GPU_FIELDS)
    return _csv(names, [[GPU_FIELDS[name](gpu) for name in names] for gpu in shown], options)


def _query_apps(asked: str, options: set[str], shown: list[SimulatedGpu]) -> list[str]:
    names = _fields(asked, APP_FIELDS)
    rows = [[APP_FIELDS[name](gpu, holder) for name in names] for gpu in shown for holder in gpu.holders]
    return _csv(names, rows, options)


def _list(shown: list[SimulatedGpu]) -> list[str]:
    return [f"GPU {gpu.index}: {gpu.devices.gpu.name} (UUID: {gpu.uuid})" for gpu in shown]


def _topology(shown: list[SimulatedGpu]) -> list[str]:
    """`topo -m`: what is between two boards, the same for each pair."""
    links = shown[0].devices.links
    columns = [f"GPU{board.index}" for board in shown]
    lines = ["\t" + "\t".join([*columns, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    for row in shown:
        cells = [" X " if row is column else links for column in shown]
        lines.append("\t".join([f"GPU{row.index}", *cells, cores, "0", "N/A"]))
    return [
        *lines,
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
        "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
        "  PIX  = Connection traversing at most a single PCIe bridge",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
    ]


def _table(shown: list[SimulatedGpu]) -> list[str]:
    rule = "+-----------------------------------------+------------------------+----------------------+"
    driver = shown[0].devices.driver
    lines = [
        datetime.now().astimezone().strftime("%a %b %e %H:%M:%S %Y"),
        rule,
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {CUDA:<8}        |",
        rule,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        rule.replace("-", "="),
    ]
    for gpu in shown:
        memory = f"{gpu.used_mib}MiB / {gpu.total_mib}MiB"
        power = f"{gpu.power_w:.0f}W / {gpu.devices.power_limit_w:.0f}W"
        state = f"{'P0' if gpu.holders or gpu.hbm else 'P8'}"
        lines += [
            f"| {gpu.index:>3}  {gpu.devices.gpu.name[:22]:<22}        On  | {gpu.bus_id:>15} Off |"
            f" {0 if gpu.hbm else 'Off':>20} |",
            f"| N/A  {gpu.temperature_c:>3}C    {state}    {power:>21} | {memory:>22} |"
            f" {100 * gpu.utilization:>6.0f}%      Default |",
            rule,
        ]
    lines += ["", "| Processes:", "|  GPU   PID   Type   Process name            GPU Memory Usage |"]
    for gpu in shown:
        for holder in gpu.holders:
            memory = f"{holder.vram_bytes // MIB}MiB"
            lines.append(f"|  {gpu.index:>3} {holder.pid:>7}    C   {holder.name:<28} {memory:>12} |")
    return lines


@dataclass(kw_only=True)
class _Command:
    show: Callable[[list[SimulatedGpu]], list[str]] = _table
    wanted: str | None = None
    every_s: float | None = None


def _parse(argv: list[str]) -> _Command:
    command, options, query = _Command(), set[str](), None
    words = iter(argv)

    def value(word: str) -> str:
        _, equals, after = word.partition("=")
        found = after if equals else next(words, None)
        if found is None:
            raise SmiCommandError(f"Option '{word}' requires a value. See 'nvidia-smi -h'.", 2)
        return found

    for word in words:
        name = word.partition("=")[0]
        if name == "--query-gpu":
            query = (_query_gpu, value(word))
        elif name == "--query-compute-apps":
            query = (_query_apps, value(word))
        elif name == "--format":
            options = {option.strip() for option in value(word).split(",")}
        elif name in ("-i", "--id"):
            command.wanted = value(word)
        elif name in ("-l", "--loop"):
            command.every_s = float(value(word))
        elif name in ("-lms", "--loop-ms"):
            command.every_s = float(value(word)) / 1000
        elif name in ("-L", "--list-gpus"):
            command.show = _list
        elif name == "topo":
            if next(words, None) not in ("-m", "--matrix"):
                raise SmiCommandError("topo: only -m is simulated.", 2)
            command.show = _topology
        else:
            raise SmiCommandError(
                f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{word}", 2
            )
    if query is not None:
        ask, asked = query
        if "csv" not in options:
            raise SmiCommandError('"--format=" switch is missing. Format "csv" is required.', 2)
        command.show = lambda shown: ask(asked, options, shown)
    return command


def main(argv: list[str] | None = None) -> int:
    """The command line; the exit status is nvidia-smi's."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    node = devices(dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    folder = os.environ.get("TOKENPEAK_SIM_DIR")
    try:
        command = _parse(sys.argv[1:] if argv is None else argv)
        if node.is_cpu or folder is None:
            raise SmiCommandError("No devices were found", 6)
        state = NodeState(Path(folder))
        due, looks = time.monotonic(), Looks()
        while True:
            sys.stdout.write("\n".join(command.show(chosen(boards(node, state, looks), command.wanted))) + "\n")
            sys.stdout.flush()
            if command.every_s is None:
                return 0
            due += command.every_s
            time.sleep(max(0.0, due - time.monotonic()))
    except SmiCommandError as refused:
        print(refused)
        return refused.status
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
