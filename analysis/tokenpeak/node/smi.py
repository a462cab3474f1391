"""What nvidia-smi, amd-smi and rocm-smi print, read without trusting any of it to be there.

Pure: text in, values out. A value that a driver does not tell (`[N/A]`, `[Not Supported]`, `[Unknown Error]`,
an empty cell, a missing column) is None.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

MIB = 1024 * 1024

GPU_FIELDS = (
    "index",
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "power.limit",
    "compute_cap",
    "mig.mode.current",
    "persistence_mode",
    "ecc.mode.current",
)
SAMPLE_FIELDS = (
    "index",
    "power.draw",
    "clocks.sm",
    "temperature.gpu",
    "memory.used",
    "utilization.gpu",
)
SLOWED_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The same since driver 535 and before: a bit for each reason why the clock is not the highest."""
SLOWED = 0x08 | 0x20 | 0x40 | 0x80
"""Of these: slowed by hardware, for heat by software, for heat by hardware, by the power supply. Not the power limit,
under which a busy board runs as it should. Bits: NVIDIA's NVML API reference, nvmlClocksEventReasons."""
APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")


def query(kind: str, fields: tuple[str, ...]) -> list[str]:
    """The nvidia-smi command line that asks for `fields`."""
    return ["nvidia-smi", f"--query-{kind}={','.join(fields)}", "--format=csv,noheader,nounits"]


def number(text: object) -> float | None:
    """The number at the beginning of a cell, with or without a unit; a decimal comma is understood."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    match = re.match(r"\s*([-+]?\d+(?:[.,]\d+)?)", str(text if text is not None else ""))
    return float(match.group(1).replace(",", ".")) if match else None


def word(text: str | None) -> str | None:
    """A cell's text; None for the driver's ways of not telling, which are all in brackets."""
    stripped = (text or "").strip()
    return None if not stripped or stripped in ("N/A", "Unknown") or re.fullmatch(r"\[.*\]", stripped) else stripped


def rows(raw: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    """nvidia-smi's CSV without header as mappings; lines that are no rows (warnings, errors) are passed over."""
    found = []
    for cells in csv.reader(io.StringIO(raw), skipinitialspace=True):
        if len(cells) == len(fields) and not cells[0].startswith("Field "):
            found.append(dict(zip(fields, (cell.strip() for cell in cells))))
        elif len(cells) > len(fields) and fields[0] == "index":
            # A locale with decimal commas breaks `250,00` in two: join the halves again.
            joined = _rejoin(cells, len(fields))
            if joined:
                found.append(dict(zip(fields, joined)))
    return found


def _rejoin(cells: list[str], wanted: int) -> list[str] | None:
    merged = [cells[0].strip()]
    excess = len(cells) - wanted
    for cell in cells[1:]:
        stripped = cell.strip()
        if excess and re.fullmatch(r"\d{2}", stripped) and re.fullmatch(r"\d+", merged[-1]) and len(merged) > 1:
            merged[-1] = f"{merged[-1]}.{stripped}"
            excess -= 1
        else:
            merged.append(stripped)
    return merged if len(merged) == wanted else None


def parse_gpus(raw: str) -> list[dict[str, Any]]:
    """The answer to GPU_FIELDS as a mapping per board, keys as in the raw format plus mig, persistence, ecc."""
    found = []
    for row in rows(raw, GPU_FIELDS):
        index = number(row["index"])
        if index is None:
            continue
        found.append(
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
                "persistence": word(row["persistence_mode"]),
                "ecc": word(row["ecc.mode.current"]),
            }
        )
    return found


def _mib(cell: str) -> int | None:
    value = number(cell)
    return None if value is None else int(value * MIB)


def parse_apps(raw: str) -> list[dict[str, Any]]:
    """The answer to APP_FIELDS: who holds VRAM. In a container or under MIG the driver may not tell how much."""
    found = []
    for row in rows(raw, APP_FIELDS):
        pid = number(row["pid"])
        if pid is not None:
            found.append(
                {
                    "gpu_uuid": word(row["gpu_uuid"]),
                    "pid": int(pid),
                    "name": word(row["process_name"]) or "unknown",
                    "vram_bytes": _mib(row["used_memory"]),
                }
            )
    return found


def parse_sample(raw: str, fields: tuple[str, ...] = SAMPLE_FIELDS) -> dict[str, float]:
    """The answer to SAMPLE_FIELDS, or these and one of SLOWED_FIELDS, as columns `gpuN_…`; untold ones are absent."""
    units = {
        "power.draw": ("power_w", 1.0),
        "clocks.sm": ("sm_clock_mhz", 1.0),
        "temperature.gpu": ("temperature_c", 1.0),
        "memory.used": ("vram_used_bytes", float(MIB)),
        "utilization.gpu": ("utilization", 0.01),
    }
    found = {}
    for row in rows(raw, fields):
        index = number(row["index"])
        if index is None:
            continue
        for field, (name, factor) in units.items():
            value = number(row[field])
            if value is not None:
                found[f"gpu{int(index)}_{name}"] = round(value * factor, 3)
        bits = row.get(fields[-1], "") if fields[-1] in SLOWED_FIELDS else ""
        if re.fullmatch(r"0x[0-9a-fA-F]+", bits):
            found[f"gpu{int(index)}_slowed"] = float(bool(int(bits, 16) & SLOWED))
    return found


def parse_used_bytes(raw: str) -> int | None:
    """Total VRAM in use from `--query-gpu=memory.used`; None when no board tells."""
    values = [number(line) for line in raw.splitlines()]
    told = [value for value in values if value is not None]
    return int(sum(told) * MIB) if told else None


def parse_amd_smi(static: str, metric: str) -> list[dict[str, Any]]:
    """`amd-smi static --json` and `amd-smi metric --json`; old versions answer a list, newer `{"gpu_data": […]}`."""
    metrics = {entry.get("gpu"): entry for entry in _amd_entries(metric)}
    found = []
    for entry in _amd_entries(static):
        index = entry.get("gpu")
        asic = _mapping(entry.get("asic"))
        measured = _mapping(metrics.get(index))
        used = _amd_value(_mapping(measured.get("mem_usage")).get("used_vram"))
        total = _amd_value(_mapping(entry.get("vram")).get("size"))
        limit = _mapping(entry.get("limit"))
        name = word(asic.get("market_name")) or "AMD GPU"
        found.append(
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
                "persistence": None,
                "ecc": None,
            }
        )
    return found


def parse_rocm_smi(raw: str) -> list[dict[str, Any]]:
    """`rocm-smi --showproductname --showmeminfo vram --showmaxpower --showuniqueid --showdriverversion --json`."""
    data = _loaded(raw)
    data = data if isinstance(data, dict) else {}
    driver = _mapping(data.get("system")).get("Driver version")
    found = []
    for card, entry in sorted(data.items()):
        match = re.fullmatch(r"card(\d+)", card)
        if not match or not isinstance(entry, dict):
            continue
        total, used = number(entry.get("VRAM Total Memory (B)")), number(entry.get("VRAM Total Used Memory (B)"))
        name = word(entry.get("Card Series") or entry.get("Card series") or entry.get("Card Model")) or "GPU"
        found.append(
            {
                "index": int(match.group(1)),
                "name": name if name.upper().startswith("AMD") else f"AMD {name}",
                "uuid": word(entry.get("Unique ID")),
                "driver": word(driver),
                "vram_bytes": None if total is None else int(total),
                "vram_used_bytes": None if used is None else int(used),
                "power_limit_w": number(entry.get("Max Graphics Package Power (W)")),
                "compute_capability": word(entry.get("GFX Version")),
                "mig": None,
                "persistence": None,
                "ecc": None,
            }
        )
    return sorted(found, key=lambda gpu: int(gpu["index"]))


def parse_amd_sample(metric: str) -> dict[str, float]:
    """`amd-smi metric --json` as the columns of `parse_sample`."""
    found: dict[str, float] = {}
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
        found.update({f"gpu{index}_{name}": value for name, value in values.items() if value is not None})
    return found


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
