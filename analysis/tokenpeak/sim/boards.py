"""The boards of the simulated node as they are now, and each field that nvidia-smi can be asked for.

Field names and units are those of nvidia-smi 570 (`nvidia-smi --help-query-gpu`), but for
`total_energy_consumption`: there the counter is NVML's alone, and this is where a simulated node shows it.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from zlib import crc32

from tokenpeak.sim.device import Devices
from tokenpeak.sim.meter import idle_power_w
from tokenpeak.sim.state import Holder, NodeState
from tokenpeak.sim.thermal import IDLE_SHARE, after_c, resting_c

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
