"""The simulated node's `nvidia-smi`: the real one's command line, over the state that simulated engines write.

    --query-gpu=FIELDS | --query-compute-apps=FIELDS  --format=csv[,noheader][,nounits] [-i GPU] [-l S | -lms MS]
    -L      topo -m      (nothing: the table)

Field names, units and messages are those of nvidia-smi 570 (`nvidia-smi --help-query-gpu`).
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zlib import crc32

from tokenpeak.sim.device import Devices, devices
from tokenpeak.sim.meter import idle_power_w
from tokenpeak.sim.state import Holder, NodeState

DRIVER = "570.172.08"
CUDA = "12.8"
MIB = 1024**2

_CLOCKS_MHZ = {"7.0": (1380, 877), "7.5": (1590, 5001), "8.0": (1410, 1593), "8.6": (1695, 6251), "8.9": (2040, 6251),
               "9.0": (1980, 2619), "10.0": (1965, 3996)}  # fmt: skip
"""Highest SM and memory clocks by compute capability."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One board as it is now."""

    index: int
    devices: Devices
    holders: tuple[Holder, ...]
    energy_j: float

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
        return min(self.devices.gpu.tdp_w, idle + sum(holder.power_w for holder in self.holders))

    @property
    def temperature_c(self) -> int:
        """Follows the power."""
        return round(28 + 40 * self.power_w / self.devices.gpu.tdp_w)

    @property
    def clocks_mhz(self) -> tuple[int, int]:
        """SM and memory clock: the highest while a process has a context, else the idle ones."""
        highest = self.max_clocks_mhz
        return highest if self.holders else (210, highest[1] if self.hbm else 405)

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


_GPU_FIELDS: Mapping[str, Callable[[Gpu], tuple[str, str]]] = {
    "timestamp": lambda _: _plain(datetime.now().astimezone().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]),
    "driver_version": lambda _: _plain(DRIVER),
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
    "power.draw": lambda gpu: _w(gpu.power_w),
    "power.draw.average": lambda gpu: _w(gpu.power_w),
    "power.draw.instant": lambda gpu: _w(gpu.power_w),
    "power.limit": lambda gpu: _w(gpu.devices.gpu.tdp_w),
    "enforced.power.limit": lambda gpu: _w(gpu.devices.gpu.tdp_w),
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
    "clocks_throttle_reasons.active": lambda _: _plain("0x0000000000000000"),
    "clocks_event_reasons.active": lambda _: _plain("0x0000000000000000"),
    "clocks_event_reasons.sw_power_cap": lambda _: _plain("Not Active"),
    "clocks_event_reasons.hw_thermal_slowdown": lambda _: _plain("Not Active"),
    "clocks_event_reasons.sw_thermal_slowdown": lambda _: _plain("Not Active"),
    "pcie.link.gen.current": lambda gpu: _plain(4 if gpu.holders else 1),
    "pcie.link.gen.max": lambda _: _plain(4),
    "pcie.link.width.current": lambda _: _plain(16),
    "pcie.link.width.max": lambda _: _plain(16),
    "vbios_version": lambda _: _plain("SIM.00.00.00.01"),
    "display_active": lambda _: _plain("Disabled"),
    "accounting.mode": lambda _: _plain("Disabled"),
}

_APP_FIELDS: Mapping[str, Callable[[Gpu, Holder], tuple[str, str]]] = {
    "timestamp": lambda gpu, _: _GPU_FIELDS["timestamp"](gpu),
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


def _mig(gpu: Gpu) -> str:
    return "Disabled" if gpu.devices.gpu.compute_capability in ("8.0", "9.0", "10.0") else "[N/A]"


class CommandError(Exception):
    """The command line is not understood; `status` is the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def gpus(node: Devices, state: NodeState, wanted: str | None) -> list[Gpu]:
    """The boards as they are now; `wanted` is one's index, UUID or bus id, or several with commas between."""
    holders = state.holders()
    since, now = state.since_unix_s(), time.time()
    found = [
        Gpu(
            index=index,
            devices=node,
            holders=tuple(holder for holder in holders if index in holder.gpus),
            energy_j=idle_power_w(node.gpu.tdp_w) * (now - since) + state.energy_above_idle(index, now),
        )
        for index in range(node.count)
    ]
    if wanted is None:
        return found
    chosen = []
    for word in wanted.split(","):
        matching = [gpu for gpu in found if word in (str(gpu.index), gpu.uuid, gpu.bus_id)]
        if not matching:
            raise CommandError("No devices were found", 6)
        chosen += matching
    return chosen


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
            raise CommandError(f'Field "{name}" is not a valid field to query.\n', 2)
    return names


def _query_gpu(asked: str, options: set[str], boards: list[Gpu]) -> list[str]:
    names = _fields(asked, _GPU_FIELDS)
    return _csv(names, [[_GPU_FIELDS[name](gpu) for name in names] for gpu in boards], options)


def _query_apps(asked: str, options: set[str], boards: list[Gpu]) -> list[str]:
    names = _fields(asked, _APP_FIELDS)
    rows = [[_APP_FIELDS[name](gpu, holder) for name in names] for gpu in boards for holder in gpu.holders]
    return _csv(names, rows, options)


def _list(boards: list[Gpu]) -> list[str]:
    return [f"GPU {gpu.index}: {gpu.devices.gpu.name} (UUID: {gpu.uuid})" for gpu in boards]


def _topology(boards: list[Gpu]) -> list[str]:
    """`topo -m`: NVLink as its number of links, else the host bridge between."""
    gpu = boards[0].devices.gpu
    links = f"NV{max(1, round(gpu.interconnect_bytes_per_s / 50e9))}" if gpu.interconnect == "nvlink" else "PHB"
    columns = [f"GPU{board.index}" for board in boards]
    lines = ["\t" + "\t".join([*columns, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    for row in boards:
        cells = [" X " if row is column else links for column in boards]
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


def _table(boards: list[Gpu]) -> list[str]:
    rule = "+-----------------------------------------+------------------------+----------------------+"
    lines = [
        datetime.now().astimezone().strftime("%a %b %e %H:%M:%S %Y"),
        rule,
        f"| NVIDIA-SMI {DRIVER:<22} Driver Version: {DRIVER:<14} CUDA Version: {CUDA:<8}        |",
        rule,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        rule.replace("-", "="),
    ]
    for gpu in boards:
        memory = f"{gpu.used_mib}MiB / {gpu.total_mib}MiB"
        power = f"{gpu.power_w:.0f}W / {gpu.devices.gpu.tdp_w:.0f}W"
        state = f"{'P0' if gpu.holders or gpu.hbm else 'P8'}"
        lines += [
            f"| {gpu.index:>3}  {gpu.devices.gpu.name[:22]:<22}        On  | {gpu.bus_id:>15} Off |"
            f" {0 if gpu.hbm else 'Off':>20} |",
            f"| N/A  {gpu.temperature_c:>3}C    {state}    {power:>21} | {memory:>22} |"
            f" {100 * gpu.utilization:>6.0f}%      Default |",
            rule,
        ]
    lines += ["", "| Processes:", "|  GPU   PID   Type   Process name            GPU Memory Usage |"]
    for gpu in boards:
        for holder in gpu.holders:
            memory = f"{holder.vram_bytes // MIB}MiB"
            lines.append(f"|  {gpu.index:>3} {holder.pid:>7}    C   {holder.name:<28} {memory:>12} |")
    return lines


@dataclass(kw_only=True)
class _Command:
    show: Callable[[list[Gpu]], list[str]] = _table
    wanted: str | None = None
    every_s: float | None = None


def _parse(argv: list[str]) -> _Command:
    command, options, query = _Command(), set[str](), None
    words = iter(argv)

    def value(word: str) -> str:
        _, equals, after = word.partition("=")
        found = after if equals else next(words, None)
        if found is None:
            raise CommandError(f"Option '{word}' requires a value. See 'nvidia-smi -h'.", 2)
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
                raise CommandError("topo: only -m is simulated.", 2)
            command.show = _topology
        else:
            raise CommandError(
                f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{word}", 2
            )
    if query is not None:
        ask, asked = query
        if "csv" not in options:
            raise CommandError('"--format=" switch is missing. Format "csv" is required.', 2)
        command.show = lambda boards: ask(asked, options, boards)
    return command


def main(argv: list[str] | None = None) -> int:
    """The command line; the exit status is nvidia-smi's."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    node = devices(dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    folder = os.environ.get("TOKENPEAK_SIM_DIR")
    try:
        command = _parse(sys.argv[1:] if argv is None else argv)
        if node.is_cpu or folder is None:
            raise CommandError("No devices were found", 6)
        state = NodeState(Path(folder))
        due = time.monotonic()
        while True:
            sys.stdout.write("\n".join(command.show(gpus(node, state, command.wanted))) + "\n")
            sys.stdout.flush()
            if command.every_s is None:
                return 0
            due += command.every_s
            time.sleep(max(0.0, due - time.monotonic()))
    except CommandError as refused:
        print(refused)
        return refused.status
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
