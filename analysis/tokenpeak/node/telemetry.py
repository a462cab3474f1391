"""A sampler on the node: power, clocks, temperature, memory and load, once a second while a trial runs.

Columns are named and scaled as in the raw format: `gpuN_power_w`, `gpuN_energy_j` (a counter), `gpuN_sm_clock_mhz`,
`gpuN_temperature_c`, `gpuN_vram_used_bytes`, `gpuN_utilization` (0..1), `gpuN_slowed` (1 while the driver holds it back
for heat or its supply), `cpu_package_energy_j` (a counter), `cpu_utilization` (0..1), `memory_used_bytes`.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Dict

from tokenpeak.node import memory, nvml, overlap, process, smi
from tokenpeak.node.state import Json, State

PROCESS = "telemetry.json"
SAMPLES = "telemetry.jsonl"
LOG = "telemetry.log"
PERIOD_S = 1.0

Source = Callable[[], Dict[str, float]]


def start(state: State, tools: str | None) -> None:
    """Start the sampler for the engine that is recorded."""
    state.path(SAMPLES).unlink() if state.path(SAMPLES).exists() else None
    argv = [*process.self_argv(), "telemetry", "--state", str(state.folder)]
    started = process.start_detached(argv, log=state.path(LOG), env=dict(os.environ), cwd="/")
    state.write(PROCESS, process.identity(started.pid), durable=False)


def stop(state: State) -> None:
    """End the sampler; its samples stay until the next trial."""
    leader = state.read(PROCESS)
    if leader:
        process.stop_group(leader, 1.0)
        state.remove_if_possible(PROCESS)


def collect(state: State) -> Json:
    """The samples as columns of equal length: t_s as unix seconds, None where a quantity was not told."""
    path = state.path(SAMPLES)
    rows: list[dict[str, float]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            # The sampler was ended while it wrote its last line.
            continue
    names = sorted({name for row in rows for name in row} - {"t"})
    return {
        "t_s": [row["t"] for row in rows],
        "columns": {name: [row.get(name) for row in rows] for name in names},
    }


def sample_forever(state: State, tools: str | None) -> Json:
    """Append a sample each second until the recorded engine has gone or this process is ended.

    Meanwhile see whether somebody starts production.
    """
    sources = [source for source in (gpu_source(tools), package_source(), machine_source()) if source is not None]
    threading.Thread(target=overlap.watch, args=(state,), daemon=True).start()
    due = time.monotonic()
    with state.path(SAMPLES).open("a", buffering=1) as stream:
        while state.has("engine.json"):
            row = {"t": round(time.time(), 3)}
            for source in sources:
                row.update(source())
            stream.write(json.dumps(row) + "\n")
            due += PERIOD_S
            time.sleep(max(0.0, due - time.monotonic()))
    return {"message": "The engine has gone."}


def gpu_source(tools: str | None) -> Source | None:
    """NVML where its library is (no process a second, and an energy counter), else the makers' tools."""
    if not tools:
        library = nvml.load()
        if library is not None:
            return library.sample
    for more in (*((field,) for field in smi.SLOWED_FIELDS), ()):
        # A driver refuses the whole query for one field that it does not know.
        fields = (*smi.SAMPLE_FIELDS, *more)
        if smi.parse_sample(process.run(smi.query("gpu", fields)).out, fields):
            return nvidia_stream(fields)
    amd = ["amd-smi", "metric", "--json"]
    if smi.parse_amd_sample(process.run(amd).out):
        return lambda: smi.parse_amd_sample(process.run(amd, timeout_s=5).out)
    return None


def nvidia_stream(fields: tuple[str, ...]) -> Source:
    """One nvidia-smi that goes on printing: starting one each second would disturb what is measured."""
    argv = [*smi.query("gpu", fields), f"--loop-ms={PERIOD_S * 1000:.0f}"]
    running = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    newest: dict[str, float] = {}

    def follow() -> None:
        assert running.stdout
        for line in running.stdout:
            newest.update(smi.parse_sample(line.decode(errors="replace"), fields))

    threading.Thread(target=follow, daemon=True).start()

    def sample() -> dict[str, float]:
        return dict(newest) if running.poll() is None else {}

    return sample


def package_source(root: Path = Path("/sys/class/powercap")) -> Source | None:
    """The processors' energy counters (RAPL), summed over packages, wrap-around undone; None where unreadable."""
    counters: list[tuple[Path, int]] = []
    for domain in sorted(root.glob("*:*")):
        try:
            name = (domain / "name").read_text().strip()
            if name.startswith("package") and domain.name.count(":") == 1:
                int((domain / "energy_uj").read_text())
                counters.append((domain / "energy_uj", int((domain / "max_energy_range_uj").read_text())))
        except (OSError, ValueError):
            continue
    if not counters:
        return None
    last = [int(path.read_text()) for path, _ in counters]
    total = [0]

    def sample() -> dict[str, float]:
        for position, (path, span) in enumerate(counters):
            now = int(path.read_text())
            total[0] += (now - last[position]) % (span + 1)
            last[position] = now
        return {"cpu_package_energy_j": round(total[0] / 1e6, 3)}

    return sample


def machine_source() -> Source:
    """Processor time and memory of the whole machine."""
    last = [_cpu_times()]

    def sample() -> dict[str, float]:
        busy, total = _cpu_times()
        was_busy, was_total = last[0]
        last[0] = (busy, total)
        found = memory.meminfo()
        row = {"memory_used_bytes": float(found.get("MemTotal", 0) - found.get("MemAvailable", 0))}
        if total > was_total:
            row["cpu_utilization"] = round((busy - was_busy) / (total - was_total), 4)
        return row

    return sample


def _cpu_times() -> tuple[int, int]:
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
