"""Boards of a node, trusting no value to be there: NVIDIA's by the maker's library or nvidia-smi, AMD's by amd-smi.

A sample by the library costs microseconds instead of a process; names, units and constants are those of NVIDIA's NVML
API reference. What a tool prints becomes values by pure functions. A value that a driver does not report (`[N/A]`,
`[Not Supported]`, an empty cell, a missing key) is left out, or None.
"""

from __future__ import annotations

import csv
import ctypes
import io
import json
import re
from collections import Counter
from typing import Any, Collection

MIB = 1024 * 1024

GPU_FIELDS = (
    *("index", "name", "uuid", "driver_version", "memory.total", "memory.used"),
    *("power.limit", "compute_cap", "mig.mode.current"),
)
SAMPLE_FIELDS = ("index", "power.draw", "clocks.sm", "temperature.gpu", "memory.used", "utilization.gpu")
COUNTER_FIELD = "total_energy_consumption"
"""An energy counter in mJ. NVIDIA's own tool leaves it to NVML, which is asked first where it is."""
SLOWED_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The same since driver 535 and before: a bit for each reason why the clock is not the highest."""
SLOWED = 0x08 | 0x20 | 0x40 | 0x80
"""Of these: slowed by hardware, for heat by software, for heat by hardware, by the power supply. Not the power limit,
under which a busy board runs as it should. Bits: NVIDIA's NVML API reference, nvmlClocksEventReasons."""
APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
_SUCCESS = 0
_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
AMD_STATIC, AMD_METRIC = ("amd-smi", "static", "--json"), ("amd-smi", "metric", "--json")


def query(kind: str, fields: tuple[str, ...]) -> list[str]:
    """The nvidia-smi command line that asks for `fields`."""
    return ["nvidia-smi", f"--query-{kind}={','.join(fields)}", "--format=csv,noheader,nounits"]


def number(text: object) -> float | None:
    """The number at the beginning of a cell, with or without a unit."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    match = re.match(r"\s*([-+]?\d+(?:\.\d+)?)", str(text if text is not None else ""))
    return float(match.group(1)) if match else None


def word(text: str | None) -> str | None:
    """A cell's text; None for a value that the driver does not report, in brackets."""
    stripped = (text or "").strip()
    return None if not stripped or stripped in ("N/A", "Unknown") or re.fullmatch(r"\[.*\]", stripped) else stripped


def _rows(raw: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    """nvidia-smi's CSV without header as mappings; lines that are no rows (warnings, errors) are passed over."""
    lines = csv.reader(io.StringIO(raw), skipinitialspace=True)
    table = [cells for cells in lines if len(cells) == len(fields) and not cells[0].startswith("Field ")]
    return [dict(zip(fields, (cell.strip() for cell in cells))) for cells in table]


def parse_gpus(raw: str) -> list[dict[str, Any]]:
    """The answer to GPU_FIELDS as a mapping per board, keys as in the raw format plus mig."""
    gpus = []
    for row in _rows(raw, GPU_FIELDS):
        index = number(row["index"])
        if index is None:
            continue
        gpus.append(
            {
                "index": int(index),
                "name": word(row["name"]) or "unknown",
                "uuid": word(row["uuid"]),
                "driver": word(row["driver_version"]),
                "vram_bytes": _mib(row["memory.total"]),
                "vram_used_bytes": _mib(row["memory.used"]),
                "power_limit_w": number(row["power.limit"]),
                "compute_capability": word(row["compute_cap"]),
                "mig": word(row["mig.mode.current"]),
            }
        )
    return gpus


def _mib(cell: str) -> int | None:
    value = number(cell)
    return None if value is None else int(value * MIB)


def parse_topology(raw: str, indexes: Collection[int] | None = None) -> str | None:
    """How boards are linked, from `nvidia-smi topo -m`: `NV12` where all pairs are alike, else `2x NV4, 4x SYS`.

    Of those with these numbers, all for None. None where no pair of them is shown. Escape sequences underline the
    heading.
    """
    links: Counter[str] = Counter()
    boards: list[str] = []
    wanted = None if indexes is None else {f"GPU{index}" for index in indexes}
    for line in raw.splitlines():
        cells = [cell.strip() for cell in re.sub(r"\x1b\[[0-9;]*m", "", line).split("\t")]
        if not boards:
            boards = [cell for cell in cells if re.fullmatch(r"GPU\d+", cell)]
        elif cells[0] in boards:
            pairs = list(zip(boards, cells[1 : len(boards) + 1]))[boards.index(cells[0]) + 1 :]
            links.update(link for other, link in pairs if wanted is None or {cells[0], other} <= wanted)
    if len(links) < 2:
        return next(iter(links), None)
    return ", ".join(f"{count}x {link}" for link, count in sorted(links.items()))


def parse_apps(raw: str) -> list[dict[str, Any]]:
    """The answer to APP_FIELDS: who holds VRAM. In a container or under MIG the driver may not report how much."""
    apps = []
    for row in _rows(raw, APP_FIELDS):
        pid = number(row["pid"])
        if pid is not None:
            apps.append(
                {
                    "gpu_uuid": word(row["gpu_uuid"]),
                    "pid": int(pid),
                    "name": word(row["process_name"]) or "unknown",
                    "vram_bytes": _mib(row["used_memory"]),
                }
            )
    return apps


def parse_sample(raw: str, fields: tuple[str, ...] = SAMPLE_FIELDS) -> dict[str, float]:
    """The answer to SAMPLE_FIELDS and what was asked besides, as columns `gpuN_…`; those not known are absent."""
    units = {
        "power.draw": ("power_w", 1.0),
        "clocks.sm": ("sm_clock_mhz", 1.0),
        "temperature.gpu": ("temperature_c", 1.0),
        "memory.used": ("vram_used_bytes", float(MIB)),
        "utilization.gpu": ("utilization", 0.01),
        COUNTER_FIELD: ("energy_j", 0.001),
    }
    columns = {}
    for row in _rows(raw, fields):
        index = number(row["index"])
        if index is None:
            continue
        for field, (name, factor) in units.items():
            value = number(row[field]) if field in row else None
            if value is not None:
                columns[f"gpu{int(index)}_{name}"] = round(value * factor, 3)
        bits = row.get(fields[-1], "") if fields[-1] in SLOWED_FIELDS else ""
        if re.fullmatch(r"0x[0-9a-fA-F]+", bits):
            columns[f"gpu{int(index)}_slowed"] = float(bool(int(bits, 16) & SLOWED))
    return columns


def parse_used_bytes(raw: str) -> int | None:
    """Total VRAM in use from `--query-gpu=memory.used`; None when no board reports it."""
    values = [number(line) for line in raw.splitlines()]
    used = [value for value in values if value is not None]
    return int(sum(used) * MIB) if used else None


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
        columns: dict[str, float] = {}
        for index, board in enumerate(self._boards):
            power, energy = ctypes.c_uint(), ctypes.c_ulonglong()
            clock, temperature = ctypes.c_uint(), ctypes.c_uint()
            memory, utilization, reasons = _Memory(), _Utilization(), ctypes.c_ulonglong()
            call, ref = self._library, ctypes.byref
            if call.nvmlDeviceGetPowerUsage(board, ref(power)) == _SUCCESS:
                columns[f"gpu{index}_power_w"] = power.value / 1000
            if call.nvmlDeviceGetTotalEnergyConsumption(board, ref(energy)) == _SUCCESS:
                columns[f"gpu{index}_energy_j"] = energy.value / 1000
            if not whole:
                continue
            if call.nvmlDeviceGetClockInfo(board, _CLOCK_SM, ref(clock)) == _SUCCESS:
                columns[f"gpu{index}_sm_clock_mhz"] = float(clock.value)
            if call.nvmlDeviceGetTemperature(board, _TEMPERATURE_GPU, ref(temperature)) == _SUCCESS:
                columns[f"gpu{index}_temperature_c"] = float(temperature.value)
            if call.nvmlDeviceGetMemoryInfo(board, ref(memory)) == _SUCCESS:
                columns[f"gpu{index}_vram_used_bytes"] = float(memory.used)
            if call.nvmlDeviceGetUtilizationRates(board, ref(utilization)) == _SUCCESS:
                columns[f"gpu{index}_utilization"] = utilization.gpu / 100
            if call.nvmlDeviceGetCurrentClocksThrottleReasons(board, ref(reasons)) == _SUCCESS:
                columns[f"gpu{index}_slowed"] = float(bool(reasons.value & SLOWED))
        return columns


def load_nvml() -> Nvml | None:
    """The library with its boards; None on a machine without it."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    count = ctypes.c_uint()
    if library.nvmlInit_v2() != _SUCCESS or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return None
    boards = []
    for index in range(count.value):
        board = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(board)) == _SUCCESS:
            boards.append(board)
    return Nvml(library, boards) if boards else None


def parse_amd_smi(static: str, metric: str) -> list[dict[str, Any]]:
    """`amd-smi static --json` and `amd-smi metric --json`; old versions answer a list, newer `{"gpu_data": […]}`."""
    metrics = {entry.get("gpu"): entry for entry in _amd_entries(metric)}
    gpus = []
    for entry in _amd_entries(static):
        index = entry.get("gpu")
        asic = _mapping(entry.get("asic"))
        measured = _mapping(metrics.get(index))
        used = _amd_value(_mapping(measured.get("mem_usage")).get("used_vram"))
        total = _amd_value(_mapping(entry.get("vram")).get("size"))
        limit = _mapping(entry.get("limit"))
        name = word(asic.get("market_name")) or "AMD GPU"
        gpus.append(
            {
                "index": int(number(index) or 0),
                "name": name if name.upper().startswith("AMD") else f"AMD {name}",
                "uuid": word(entry.get("uuid") or asic.get("asic_serial")),
                "driver": word(_mapping(entry.get("driver")).get("version")),
                "vram_bytes": None if total is None else int(total * MIB),
                "vram_used_bytes": None if used is None else int(used * MIB),
                "power_limit_w": _amd_value(limit.get("max_power") or limit.get("socket_power_limit")),
                "compute_capability": word(asic.get("target_graphics_version")),
                "mig": None,
            }
        )
    return gpus


def parse_amd_sample(metric: str) -> dict[str, float]:
    """`amd-smi metric --json` as the columns of `parse_sample`."""
    columns: dict[str, float] = {}
    for entry in _amd_entries(metric):
        index = int(number(entry.get("gpu")) or 0)
        clocks = _mapping(_mapping(entry.get("clock")).get("gfx_0"))
        used = _amd_value(_mapping(entry.get("mem_usage")).get("used_vram"))
        busy = _amd_value(_mapping(entry.get("usage")).get("gfx_activity"))
        values = {
            "power_w": _amd_value(_mapping(entry.get("power")).get("socket_power")),
            "energy_j": _amd_value(_mapping(entry.get("energy")).get("total_energy_consumption")),
            "sm_clock_mhz": _amd_value(clocks.get("clk")),
            "temperature_c": _amd_value(_mapping(entry.get("temperature")).get("hotspot")),
            "vram_used_bytes": None if used is None else used * MIB,
            "utilization": None if busy is None else busy / 100,
        }
        columns.update({f"gpu{index}_{name}": value for name, value in values.items() if value is not None})
    return columns


def _loaded(raw: str) -> Any:
    """JSON that may follow a warning line; None when there is none."""
    start = min((position for position in (raw.find("{"), raw.find("[")) if position >= 0), default=-1)
    if start < 0:
        return None
    try:
        return json.loads(raw[start:])
    except ValueError:
        return None


def _amd_entries(raw: str) -> list[dict[str, Any]]:
    data = _loaded(raw)
    if isinstance(data, dict):
        data = data.get("gpu_data", [])
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def _amd_value(value: Any) -> float | None:
    """A plain number, `"750 W"`, or `{"value": 750, "unit": "W"}`."""
    return number(value.get("value") if isinstance(value, dict) else value)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
