"""Power sensors and energy counters of boards: which time a reading covers, and how old it may be.

Source of NVIDIA's: Yang, Adamek and Armour, "Accurate and Convenient Energy Measurements for GPUs", SC24, arXiv
2312.02741: a reading is the mean power over a window, a new one comes each update, and where the window is shorter
than the update the rest of the time is not looked at. From Ampere on, but for GA100, `power.draw` is the mean over one
second (NVML API reference, nvmlDeviceGetPowerUsage). A counter moves at the updates.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.records import Gpu


@dataclass(frozen=True, kw_only=True)
class PowerSensor:
    """How readings follow the power, all in seconds."""

    window_s: float
    """A power reading is the mean over this time, until its update."""
    update_s: float
    """A new power reading comes this often."""
    counter_update_s: float
    """The energy counter moves this often."""
    attended: float = 1.0
    """The share of the time that the counter's own readings cover."""


UNKNOWN = PowerSensor(window_s=0.1, update_s=0.1, counter_update_s=0.1)
PROCESSOR = PowerSensor(window_s=0.001, update_s=0.001, counter_update_s=0.001)
"""RAPL: a counter that moves each millisecond (Intel SDM, volume 3B, 15.10)."""
NODE = PowerSensor(window_s=1.0, update_s=1.0, counter_update_s=1.0)
"""A BMC or PDU: a mean over about a second, once a second (DCMI 1.5, 6.6.1, leaves the window to the maker)."""
AMD = PowerSensor(window_s=0.1, update_s=0.3, counter_update_s=0.3)
"""The counter moves each millisecond, but AMD's tools take some 0.3 s to answer, and read anywhere in it: assumed, not
measured."""
_BY_CAPABILITY = {
    "7.0": PowerSensor(window_s=0.01, update_s=0.02, counter_update_s=0.02, attended=0.5),
    "7.5": PowerSensor(window_s=0.1, update_s=0.1, counter_update_s=0.1),
    "8.0": PowerSensor(window_s=0.025, update_s=0.1, counter_update_s=0.1, attended=0.25),
    "8.6": PowerSensor(window_s=1.0, update_s=0.1, counter_update_s=0.1),
    "8.9": PowerSensor(window_s=1.0, update_s=0.1, counter_update_s=0.1),
    "9.0": PowerSensor(window_s=1.0, update_s=0.1, counter_update_s=0.1, attended=0.25),
    **dict.fromkeys(("10.0", "10.3", "12.0"), PowerSensor(window_s=1.0, update_s=0.1, counter_update_s=0.1)),
}


def power_sensor(compute_capability: str) -> PowerSensor:
    """The sensor of boards of a compute capability (`9.0`); UNKNOWN where nobody has looked at one."""
    return _BY_CAPABILITY.get(compute_capability, UNKNOWN)


def boards_sensor(gpus: Iterable[Gpu]) -> PowerSensor:
    """That of a node's boards; UNKNOWN where they differ or nobody knows them."""
    boards = list(gpus)
    if boards and all(gpu.name.startswith("AMD") for gpu in boards):
        return AMD
    known = [gpu_facts(gpu.name) for gpu in boards]
    kinds = {gpu.compute_capability if gpu is not None else "" for gpu in known}
    return power_sensor(kinds.pop()) if len(kinds) == 1 else UNKNOWN
