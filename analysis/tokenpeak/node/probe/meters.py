"""Meters of power and energy (the boards', the whole node's, the processors'), and the sampler that reads them.

The whole node is measured by the command that the inventory declares, which prints watts (of a PDU, by Redfish), else
by the machine's BMC through `ipmitool dcmi power reading`. The sampler reads power and energy five times a second, and
clocks and the rest once a second: energy at both ends of a run is known as well as the readings there are young.

Columns are named and scaled as in the raw format: `gpuN_power_w`, `gpuN_energy_j` (a counter), `gpuN_sm_clock_mhz`,
`gpuN_temperature_c`, `gpuN_vram_used_bytes`, `gpuN_utilization` (0..1), `gpuN_slowed` (1 while the driver holds it back
for heat or its supply), `cpu_package_energy_j` and `cpu_dram_energy_j` (counters), `cpu_utilization` (0..1),
`memory_used_bytes`, `node_power_w`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Dict

from tokenpeak.node.guard import overlap
from tokenpeak.node.machine import process, root_files, trust
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_command, shown_output
from tokenpeak.node.probe import boards, chosen_boards, facts
from tokenpeak.node.protocol.answers import TelemetryAnswer
from tokenpeak.node.protocol.parts import PowerMeter, Series
from tokenpeak.node.protocol.requests import IDLE_MAX_S

DCMI = ("ipmitool", "dcmi", "power", "reading")
NODE_PERIOD_S = 1.0
"""A BMC has a new reading about once a second, and a process for each must not disturb what is measured."""
NODE_TIMEOUT_S = 5.0
MOST_W = 1e6
POWERCAP = Path("/sys/class/powercap")
DECLARED_AS = "tokenpeak_power_command"

Source = Callable[[bool], Dict[str, float]]
"""Takes whether every quantity is wanted."""
PROCESS = "telemetry.json"
SAMPLES = "telemetry.jsonl"
LOG = "telemetry.log"
PERIOD_S = 0.2
WHOLE_EVERY = 5
"""Of so many samples one has every quantity; the others hold what energy is computed from."""
ENGINE_AWAITED_S = IDLE_MAX_S + 30.0
"""A node is measured idle for a while before its engine starts; without one, the sampler ends by itself after this."""
BOARDS_APART_S = 0.005
OF_ENERGY = ("_power_w", "_energy_j")


def declared_command(declaration: Json) -> list[str]:
    """The inventory's own command that prints the node's power; empty where it declares none."""
    return [str(word) for word in declaration.get("power_command") or []]


def rights_problem(declaration: Json) -> str | None:
    """Where root would run the declared command from what others can write, and what to do; None where it would not."""
    return trust.danger_to_root(DECLARED_AS, trust.files_of_command(declared_command(declaration)))


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
    ran = process.run(declared or DCMI, NODE_TIMEOUT_S)
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
            time.sleep(max(0.0, began + NODE_PERIOD_S - time.monotonic()))
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
    found: list[PowerMeter] = []
    if any(name.endswith("_energy_j") for name in sample):
        found.append(PowerMeter(boundary="gpu_boards", by="energy counter"))
    elif any(name.endswith("_power_w") for name in sample):
        found.append(PowerMeter(boundary="gpu_boards", by="power readings"))
    if node_power_w(declaration) is not None:
        declared = declared_command(declaration)
        found.append(PowerMeter(boundary="node", by="declared command" if declared else "BMC, DCMI"))
    processors = processor_source(root)
    columns = processors(True) if processors else {}
    if columns:
        has_dram = "cpu_dram_energy_j" in columns
        found.append(PowerMeter(boundary="cpu_and_dram" if has_dram else "cpu_package", by="RAPL"))
    return tuple(found)


def problems(declaration: Json, meters: tuple[PowerMeter, ...]) -> list[str]:
    """The problem of the declared command, which is asked for and prints no watts."""
    declared = declared_command(declaration)
    if not declared or any(meter.boundary == "node" for meter in meters):
        return []
    ran = process.run(declared, NODE_TIMEOUT_S)
    return [
        f"{shown_command(declared)} ended with status {ran.status} and printed no watts, but: "
        f"{shown_output(ran.err or ran.out, 200)}. Let it print one number, or take {DECLARED_AS} out of the inventory."
    ]


def start(state: State) -> None:
    """Start the sampler for the engine that is recorded, or is about to be."""
    root_files.remove(state.path(SAMPLES))
    started = process.start_again(["telemetry", "--state", str(state.folder)], state.path(LOG))
    state.write(PROCESS, process.identity(started.pid), durable=False)


def stop(state: State) -> None:
    """End the sampler; its samples stay until the next trial."""
    leader = state.read(PROCESS)
    if leader:
        process.stop_group(leader, 1.0, process.one_user(os.geteuid()))
        state.remove_if_possible(PROCESS)


def collect(state: State) -> Series:
    """The samples as columns of equal length: t_s as unix seconds, None where a quantity was not sampled."""
    path = state.path(SAMPLES)
    rows: list[dict[str, float]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            # The sampler was ended while it wrote its last line.
            continue
    names = sorted({name for row in rows for name in row} - {"t"})
    columns = {name: tuple(row.get(name) for row in rows) for name in names}
    return Series(t_s=tuple(row["t"] for row in rows), columns=columns)


def sample_forever(state: State, declaration: Json) -> TelemetryAnswer:
    """Append samples until the recorded engine has gone, none came for a while, or this process is ended.

    Meanwhile see whether somebody starts production.
    """
    gpus, processors = gpu_source(declaration.get("tools")), processor_source()
    chosen = chosen_boards.indexes(chosen_boards.chosen_boards(declaration))
    # Root runs no command that others could have replaced.
    node = None if rights_problem(declaration) else node_source(declaration)
    sources = [source for source in (gpus, processors, node, machine_source()) if source is not None]
    due, number, has_begun = time.monotonic(), 0, False
    begins_until = due + ENGINE_AWAITED_S
    with os.fdopen(root_files.appending(state.path(SAMPLES)), "w", buffering=1) as stream:
        while state.has("engine.json") or (not has_begun and time.monotonic() < begins_until):
            if not has_begun and state.has("engine.json"):
                has_begun = True
                threading.Thread(target=overlap.watch, args=(state,), daemon=True).start()
            row: dict[str, float] = {}
            for source in sources:
                row.update(chosen_boards.columns_of(source(number % WHOLE_EVERY == 0), chosen))
            if row:
                stream.write(json.dumps({"t": round(time.time(), 3), **row}) + "\n")
            # A machine that was too busy for some samples goes on from now: none is made up for.
            due, number = max(due + PERIOD_S, time.monotonic()), number + 1
            time.sleep(max(0.0, due - time.monotonic()))
    return TelemetryAnswer(message="The engine has gone.")


def gpu_source(tools: str | None) -> Source | None:
    """NVML where its library is (no process a second, and an energy counter), else the makers' tools."""
    if not tools:
        library = boards.load_nvml()
        if library is not None:
            return library.sample
    fields, _ = nvidia_fields()
    if fields:
        return nvidia_stream(fields)
    if not any(name.endswith(OF_ENERGY) for name in amd_sample()):
        return None
    # A process for each sample: once a second is as often as it may disturb what is measured.
    return lambda whole: amd_sample() if whole else {}


def boards_now(tools: str | None) -> dict[str, float]:
    """One sample of the boards; empty where nothing reads them."""
    library = None if tools else boards.load_nvml()
    if library is not None:
        return library.sample(True)
    return nvidia_fields()[1] or amd_sample()


def nvidia_fields() -> tuple[tuple[str, ...], dict[str, float]]:
    """The fields that nvidia-smi answers, and their values now; none where it is not there."""
    slowed = tuple((field,) for field in boards.SLOWED_FIELDS)
    for more in ((boards.COUNTER_FIELD, *slowed[0]), *slowed, ()):
        # A driver refuses the whole query for one field that it does not know.
        fields = (*boards.SAMPLE_FIELDS, *more)
        values = boards.parse_sample(process.run(boards.query("gpu", fields)).out, fields)
        if values:
            return fields, values
    return (), {}


def amd_sample() -> dict[str, float]:
    """One sample of AMD's boards; empty where there are none."""
    return boards.parse_amd_sample(process.run(boards.AMD_METRIC, timeout_s=5).out)


def nvidia_stream(fields: tuple[str, ...]) -> Source:
    """One nvidia-smi that goes on printing: starting one for each sample would disturb what is measured."""
    argv = [*boards.query("gpu", fields), f"--loop-ms={PERIOD_S * 1000:.0f}"]
    # Without decimal commas, whatever the locale of the caller.
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    running = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env)
    newest: dict[str, float] = {}
    is_fresh = threading.Event()

    def follow() -> None:
        assert running.stdout
        for line in running.stdout:
            newest.update(boards.parse_sample(line.decode(errors="replace"), fields))
            is_fresh.set()

    threading.Thread(target=follow, daemon=True).start()

    def sample(whole: bool) -> dict[str, float]:
        # A sample is as old as its reading: wait for the next one, whose boards come in one go.
        is_fresh.clear()
        is_fresh.wait(2 * PERIOD_S)
        time.sleep(BOARDS_APART_S)
        if running.poll() is not None:
            return {}
        return {name: value for name, value in list(newest.items()) if whole or name.endswith(OF_ENERGY)}

    return sample


def machine_source() -> Source:
    """Processor time and memory of the whole machine."""
    last = [_cpu_times()]

    def sample(whole: bool) -> dict[str, float]:
        if not whole:
            return {}
        busy, total = _cpu_times()
        was_busy, was_total = last[0]
        last[0] = (busy, total)
        sizes = facts.meminfo()
        row = {"memory_used_bytes": float(sizes.get("MemTotal", 0) - sizes.get("MemAvailable", 0))}
        if total > was_total:
            row["cpu_utilization"] = round((busy - was_busy) / (total - was_total), 4)
        return row

    return sample


def _cpu_times() -> tuple[int, int]:
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
