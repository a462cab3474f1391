"""NVIDIA's management library through ctypes: a sample costs microseconds instead of an nvidia-smi process.

Names, units and constants: NVIDIA's NVML API reference. A quantity that a board does not support is left out.
"""

from __future__ import annotations

import ctypes

from tokenpeak.node import smi

SUCCESS = 0
CLOCK_SM = 1
TEMPERATURE_GPU = 0


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Nvml:
    """An initialised library and its boards."""

    def __init__(self, library: ctypes.CDLL, boards: list[ctypes.c_void_p]) -> None:
        self._library = library
        self._boards = boards

    def sample(self, whole: bool) -> dict[str, float]:
        """Columns `gpuN_…` in the raw format's units: power and energy, or all that there are."""
        found: dict[str, float] = {}
        for index, board in enumerate(self._boards):
            power, energy = ctypes.c_uint(), ctypes.c_ulonglong()
            clock, temperature = ctypes.c_uint(), ctypes.c_uint()
            memory, utilization, reasons = _Memory(), _Utilization(), ctypes.c_ulonglong()
            call, ref = self._library, ctypes.byref
            if call.nvmlDeviceGetPowerUsage(board, ref(power)) == SUCCESS:
                found[f"gpu{index}_power_w"] = power.value / 1000
            if call.nvmlDeviceGetTotalEnergyConsumption(board, ref(energy)) == SUCCESS:
                found[f"gpu{index}_energy_j"] = energy.value / 1000
            if not whole:
                continue
            if call.nvmlDeviceGetClockInfo(board, CLOCK_SM, ref(clock)) == SUCCESS:
                found[f"gpu{index}_sm_clock_mhz"] = float(clock.value)
            if call.nvmlDeviceGetTemperature(board, TEMPERATURE_GPU, ref(temperature)) == SUCCESS:
                found[f"gpu{index}_temperature_c"] = float(temperature.value)
            if call.nvmlDeviceGetMemoryInfo(board, ref(memory)) == SUCCESS:
                found[f"gpu{index}_vram_used_bytes"] = float(memory.used)
            if call.nvmlDeviceGetUtilizationRates(board, ref(utilization)) == SUCCESS:
                found[f"gpu{index}_utilization"] = utilization.gpu / 100
            if call.nvmlDeviceGetCurrentClocksThrottleReasons(board, ref(reasons)) == SUCCESS:
                found[f"gpu{index}_slowed"] = float(bool(reasons.value & smi.SLOWED))
        return found


def load() -> Nvml | None:
    """The library with its boards; None on a machine without it."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    count = ctypes.c_uint()
    if library.nvmlInit_v2() != SUCCESS or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != SUCCESS:
        return None
    boards = []
    for index in range(count.value):
        board = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(board)) == SUCCESS:
            boards.append(board)
    return Nvml(library, boards) if boards else None
