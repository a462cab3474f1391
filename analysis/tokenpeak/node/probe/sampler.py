"""A sampler on the node: power and energy five times a second while a trial runs; clocks and the rest once a second.

Energy is read at both ends of each run: it is known as well as the readings there are young.

Columns are named and scaled as in the raw format: `gpuN_power_w`, `gpuN_energy_j` (a counter), `gpuN_sm_clock_mhz`,
`gpuN_temperature_c`, `gpuN_vram_used_bytes`, `gpuN_utilization` (0..1), `gpuN_slowed` (1 while the driver holds it back
for heat or its supply), `cpu_package_energy_j` and `cpu_dram_energy_j` (counters), `cpu_utilization` (0..1),
`memory_used_bytes`, `node_power_w`.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path

from tokenpeak.node.guard import overlap
from tokenpeak.node.machine import process, root_files
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.probe import boards, chosen_boards, facts, meters
from tokenpeak.node.probe.meters import Source
from tokenpeak.node.protocol.answers import TelemetryAnswer
from tokenpeak.node.protocol.parts import Series
from tokenpeak.node.protocol.requests import IDLE_MAX_S

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
    gpus, processors = gpu_source(declaration.get("tools")), meters.processor_source()
    chosen = chosen_boards.indexes(chosen_boards.chosen_boards(declaration))
    # Root runs no command that others could have replaced.
    node = None if meters.rights_problem(declaration) else meters.node_source(declaration)
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
