"""Meters of power and energy: the boards' own, the whole node's, and the processors', and which of them a node has.

The whole node is measured by the command that the inventory declares, which prints watts (of a PDU, by Redfish), else
by the machine's BMC through `ipmitool dcmi power reading`.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from pathlib import Path
from typing import Callable, Dict

from tokenpeak.node.machine import process, root_programs
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_command, shown_output
from tokenpeak.node.protocol.parts import PowerMeter

DCMI = ("ipmitool", "dcmi", "power", "reading")
PERIOD_S = 1.0
"""A BMC has a new reading about once a second, and a process for each must not disturb what is measured."""
TIMEOUT_S = 5.0
MOST_W = 1e6
POWERCAP = Path("/sys/class/powercap")
DECLARED_AS = "tokenpeak_power_command"

Source = Callable[[bool], Dict[str, float]]
"""Takes whether every quantity is wanted."""


def declared_command(declaration: Json) -> list[str]:
    """The inventory's own command that prints the node's power; empty where it declares none."""
    return [str(word) for word in declaration.get("power_command") or []]


def rights_problem(declaration: Json) -> str | None:
    """Where root would run the declared command from what others can write, and what to do; None where it would not."""
    return root_programs.problem(DECLARED_AS, root_programs.of_command(declared_command(declaration)))


def parse_dcmi(raw: str) -> float | None:
    """The power in `ipmitool dcmi power reading`; None where the BMC does not read it now, or says 0 W."""
    power = re.search(r"Instantaneous power reading:\s*(\d+)\s*Watts", raw)
    is_active = re.search(r"Power reading state is:\s*activated", raw)
    watts = float(power.group(1)) if power and is_active else 0.0
    return watts if 0 < watts <= MOST_W else None


def parse_watts(raw: str) -> float | None:
    """The power that a declared command prints: one number, perhaps with its unit, alone on the last line."""
    match = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*(?:W|Watts?)?\s*", (raw.strip().splitlines() or [""])[-1], re.IGNORECASE
    )
    watts = float(match.group(1)) if match else 0.0
    return watts if 0 < watts <= MOST_W else None


def node_power_w(declaration: Json) -> float | None:
    """The power of the whole node now; None where nothing says it."""
    declared = declared_command(declaration)
    if rights_problem(declaration):
        return None
    ran = process.run(declared or DCMI, TIMEOUT_S)
    return None if ran.status != 0 else parse_watts(ran.out) if declared else parse_dcmi(ran.out)


def node_source(declaration: Json) -> Source | None:
    """The whole node's power, read in a thread of its own, so that boards are not read late; None without a program.

    A meter that does not answer the first time is not asked again.
    """
    if shutil.which((declared_command(declaration) or DCMI)[0]) is None:
        return None
    unread: list[float] = []

    def follow() -> None:
        began, watts = time.monotonic(), node_power_w(declaration)
        is_there = watts is not None
        while is_there:
            unread[:] = [] if watts is None else [watts]
            time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))
            began, watts = time.monotonic(), node_power_w(declaration)

    threading.Thread(target=follow, daemon=True).start()
    return lambda _: {"node_power_w": unread.pop()} if unread else {}


def processor_source(root: Path = POWERCAP) -> Source | None:
    """The energy counters of processors and their memory (RAPL), each summed over packages, wrap-around undone.

    None where no package can be read. Memory has a counter on servers only.
    """
    counters: dict[tuple[str, str], tuple[str, Path, int]] = {}
    # A package can show the same counter twice, through registers and through memory: the first is kept.
    for domain in sorted(root.glob("*:*"), key=lambda path: ("-mmio:" in path.name, path.name)):
        try:
            name = (domain / "name").read_text().strip()
            package = (root / domain.name.rpartition(":")[0] / "name").read_text().strip() if name == "dram" else name
            column = "cpu_dram_energy_j" if name == "dram" else "cpu_package_energy_j"
            if package.startswith("package"):
                int((domain / "energy_uj").read_text())
                span = int((domain / "max_energy_range_uj").read_text())
                counters.setdefault((package, column), (column, domain / "energy_uj", span))
        except (OSError, ValueError):
            continue
    if not any(column == "cpu_package_energy_j" for column, _, _ in counters.values()):
        return None
    last = {path: int(path.read_text()) for _, path, _ in counters.values()}
    total = {column: 0 for column, _, _ in counters.values()}

    def sample(_: bool) -> dict[str, float]:
        for column, path, span in counters.values():
            now = int(path.read_text())
            total[column] += (now - last[path]) % (span + 1)
            last[path] = now
        return {column: round(energy_uj / 1e6, 3) for column, energy_uj in total.items()}

    return sample


def found_meters(declaration: Json, sample: dict[str, float], root: Path = POWERCAP) -> tuple[PowerMeter, ...]:
    """The meters of the node, by one sample of its boards and one look at each other meter."""
    meters = []
    if any(name.endswith("_energy_j") for name in sample):
        meters.append(PowerMeter(boundary="gpu_boards", by="energy counter"))
    elif any(name.endswith("_power_w") for name in sample):
        meters.append(PowerMeter(boundary="gpu_boards", by="power readings"))
    if node_power_w(declaration) is not None:
        declared = declared_command(declaration)
        meters.append(PowerMeter(boundary="node", by="declared command" if declared else "BMC, DCMI"))
    processors = processor_source(root)
    columns = processors(True) if processors else {}
    if columns:
        has_dram = "cpu_dram_energy_j" in columns
        meters.append(PowerMeter(boundary="cpu_and_dram" if has_dram else "cpu_package", by="RAPL"))
    return tuple(meters)


def problems(declaration: Json, meters: tuple[PowerMeter, ...]) -> list[str]:
    """The problem of the declared command, which is asked for and prints no watts."""
    declared = declared_command(declaration)
    if not declared or any(meter.boundary == "node" for meter in meters):
        return []
    ran = process.run(declared, TIMEOUT_S)
    return [
        f"{shown_command(declared)} ended with status {ran.status} and printed no watts, but: "
        f"{shown_output(ran.err or ran.out, 200)}. Let it print one number, or take {DECLARED_AS} out of the inventory."
    ]
