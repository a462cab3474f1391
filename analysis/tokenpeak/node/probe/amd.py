"""AMD's boards by amd-smi, trusting no value to be there.

Pure: text in, values out. A value that a driver does not report (`N/A`, a missing key) is None.
"""

from __future__ import annotations

import json
from typing import Any

from tokenpeak.node.probe.nvidia import MIB, number, word

STATIC, METRIC = ("amd-smi", "static", "--json"), ("amd-smi", "metric", "--json")


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
