"""The boards of the simulated node as they are now, and each field that nvidia-smi can be asked for.

Field names and units are those of nvidia-smi 570 (`nvidia-smi --help-query-gpu`), but for
`total_energy_consumption`: there the counter is NVML's alone, and this is where a simulated node shows it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from zlib import crc32

from tokenpeak.sim.device import Devices
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


GPU_FIELDS: Mapping[str, Callable[[Gpu], tuple[str, str]]] = {
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

APP_FIELDS: Mapping[str, Callable[[Gpu, Holder], tuple[str, str]]] = {
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


def _reasons(gpu: Gpu) -> str:
    return f"0x{0x40 if gpu.slowed else 0:016x}"


def _mig(gpu: Gpu) -> str:
    return "Disabled" if gpu.devices.gpu.compute_capability in ("8.0", "9.0", "10.0") else "[N/A]"


def boards(node: Devices, state: NodeState) -> list[Gpu]:
    """The boards as they are now."""
    holders = state.holders()
    since, now = state.since_unix_s(), time.time()
    return [
        Gpu(
            index=index,
            devices=node,
            holders=tuple(holder for holder in holders if index in holder.gpus),
            energy_j=idle_power_w(node.gpu.tdp_w) * (now - since) + state.energy_above_idle(index, now),
        )
        for index in range(node.count)
    ]
