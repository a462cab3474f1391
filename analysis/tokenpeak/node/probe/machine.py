"""The machine itself: processor, memory, disk, system, and whether a port is free."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
from pathlib import Path

from tokenpeak.node import memory
from tokenpeak.node.machine import sockets
from tokenpeak.node.machine.process_files import command_line
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import without_secrets


def parse_cpu_name(cpuinfo: str) -> str | None:
    """The processor's name in /proc/cpuinfo; ARM machines often give none."""
    match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return " ".join(match.group(1).split()) if match else None


def facts(folder: Path) -> Json:
    """cpu, cpu_cores (that this process may use), memory_bytes, disk_free_bytes (of `folder`), os, kernel."""
    release = Path("/etc/os-release")
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]*)', release.read_text(), re.MULTILINE) if release.exists() else None
    return {
        "cpu": parse_cpu_name(Path("/proc/cpuinfo").read_text(errors="replace")) or platform.machine(),
        "cpu_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.meminfo().get("MemTotal"),
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
    """What to do about an address where no engine could listen; None when one could."""
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
        words = command_line(int(listener.split()[0]))
        starts = [place for place, word in enumerate(words) if word == "serve" or word.endswith("api_server")]
        if starts:
            return without_secrets(words[starts[0] + 1 :])
    return []
