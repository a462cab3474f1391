"""Facts of the machine: processor, memory and when it has come to rest, disk, system, and whether a port is free."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Callable, NamedTuple

from tokenpeak.node.machine import process, sockets
from tokenpeak.node.machine.process_files import command_line
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import without_secrets
from tokenpeak.node.probe import boards, chosen_boards, serve_file

GPU_TOLERANCE_BYTES = 64 * boards.MIB
"""The driver's own bookkeeping moves by less than this."""
RAM_TOLERANCE = 0.01
"""Share of the machine's memory that other processes may move meanwhile."""
REST_TIMEOUT_S = 30.0


def meminfo() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    sizes = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        amount = rest.split()
        if amount and amount[0].isdigit():
            sizes[name] = int(amount[0]) * 1024
    return sizes


class Gauge(NamedTuple):
    """A way to read the memory in use, and the change of it that means nothing."""

    kind: str
    used_bytes: Callable[[], int | None]
    tolerance_bytes: float


def make_gauge(chosen: chosen_boards.Chosen = None) -> Gauge:
    """VRAM of the chosen boards by nvidia-smi or amd-smi where one answers, else the machine's memory."""
    only = ["-i", ",".join(chosen)] if chosen else []
    tool = ["nvidia-smi", *only, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if boards.parse_used_bytes(process.run(tool).out) is not None:
        return Gauge("vram", lambda: boards.parse_used_bytes(process.run(tool).out), GPU_TOLERANCE_BYTES)
    static = process.run(boards.AMD_STATIC).out
    if amd_used(static, process.run(boards.AMD_METRIC).out, chosen) is not None:
        return Gauge("vram", lambda: amd_used(static, process.run(boards.AMD_METRIC).out, chosen), GPU_TOLERANCE_BYTES)
    return Gauge("ram", _ram_used, RAM_TOLERANCE * meminfo().get("MemTotal", 0))


def amd_used(static: str, metric: str, chosen: chosen_boards.Chosen = None) -> int | None:
    """VRAM in use on the chosen boards by amd-smi; None when none reports it."""
    listed = chosen_boards.only(boards.parse_amd_smi(static, metric), chosen)
    used = [gpu["vram_used_bytes"] for gpu in listed if gpu["vram_used_bytes"] is not None]
    return sum(used) if used else None


def _ram_used() -> int | None:
    sizes = meminfo()
    return sizes.get("MemTotal", 0) - sizes.get("MemAvailable", 0)


class Level(NamedTuple):
    """Whether memory came to rest, at how much, after how long."""

    is_level: bool
    used_bytes: int | None
    waited_s: float


def wait_level(gauge: Gauge, baseline_bytes: int | None = None) -> Level:
    """Wait until memory in use is back at `baseline_bytes`, or else no longer falls between two looks."""
    began = time.monotonic()
    previous = gauge.used_bytes()
    while True:
        waited_s = time.monotonic() - began
        if previous is None:
            return Level(False, None, waited_s)
        if baseline_bytes is not None and previous <= baseline_bytes + gauge.tolerance_bytes:
            return Level(True, previous, waited_s)
        if waited_s >= REST_TIMEOUT_S:
            return Level(False, previous, waited_s)
        time.sleep(0.1)
        current = gauge.used_bytes()
        at_rest = current is not None and abs(current - previous) <= gauge.tolerance_bytes
        # Above a known baseline, rest alone proves little: something may still hold on for a moment.
        if at_rest and (baseline_bytes is None or waited_s >= 5.0):
            return Level(True, current, time.monotonic() - began)
        previous = current


def parse_cpu_name(cpuinfo: str) -> str | None:
    """The processor's name in /proc/cpuinfo; ARM machines often give none."""
    match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return " ".join(match.group(1).split()) if match else None


def machine_facts(folder: Path) -> Json:
    """cpu, cpu_cores (that this process may use), memory_bytes, disk_free_bytes (of `folder`), os, kernel."""
    release = Path("/etc/os-release")
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]*)', release.read_text(), re.MULTILINE) if release.exists() else None
    return {
        "cpu": parse_cpu_name(Path("/proc/cpuinfo").read_text(errors="replace")) or platform.machine(),
        "cpu_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": meminfo().get("MemTotal"),
        "disk_free_bytes": shutil.disk_usage(folder).free,
        "os": pretty.group(1) if pretty else platform.system(),
        "kernel": platform.release(),
    }


def why_not_bindable(host: str, port: int) -> str | None:
    """None when an engine could listen there now, otherwise the reason in words."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def port_problem(host: str, port: int) -> str | None:
    """The remedy for an address where no engine could listen; None when one could."""
    error = why_not_bindable(host, port)
    if error is None:
        return None
    who = sockets.listeners(host, port)
    if who:
        return f"Port {port} on {host} is in use by {', '.join(who)}: stop it, or set tokenpeak_port to a free port."
    return f"The engine could not listen on {host}:{port} ({error}): correct tokenpeak_host or tokenpeak_port."


def served_with(host: str, port: int) -> list[str]:
    """The arguments of the engine that listens on a TCP port of `host`, from `serve` on, without what may be secret.

    Empty when this user may not see it, or when it is no engine that we know by its command line.
    """
    for listener in sockets.listeners(host, port):
        number = int(listener.split()[0])
        words = command_line(number)
        starts = [place for place, word in enumerate(words) if word == "serve" or word.endswith("api_server")]
        if starts:
            return without_secrets(serve_file.with_settings(words[starts[0] + 1 :], number))
    return []
