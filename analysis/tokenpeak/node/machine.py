"""The machine itself: processor, memory, disk, system, and who listens on a port."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
from pathlib import Path

from tokenpeak.node import memory
from tokenpeak.node.state import Json

SECRET = re.compile("(key|token)$|secret|password", re.IGNORECASE)
"""Flags that are not told, nor their values."""
_MAPPED = "0000000000000000FFFF0000"
"""What stands before an IPv4 address on an IPv6 socket, as the kernel writes it."""


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
    who = listeners(host, port)
    if who:
        return f"Port {port} on {host} is in use by {', '.join(who)}: stop it, or set tokenpeak_port to a free port."
    return f"The engine could not listen on {host}:{port} ({error}): correct tokenpeak_host or tokenpeak_port."


def listeners(host: str, port: int) -> list[str]:
    """`pid name` of the processes that listen on a TCP port of `host`, as far as this user may see them."""
    inodes = set()
    wanted = _kernel_addresses(host)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = Path(table).read_text().splitlines()[1:] if Path(table).exists() else []
        for line in lines:
            cells = line.split()
            address, _, number = cells[1].rpartition(":")
            if cells[3] == "0A" and int(number, 16) == port and address in wanted:
                inodes.add(f"socket:[{cells[9]}]")
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()] if inodes else []
    return sorted(filter(None, (_told(entry) for entry in entries if _holds(entry, inodes))))


def served_with(host: str, port: int) -> list[str]:
    """The arguments of the engine that listens on a TCP port of `host`, from `serve` on, without what may be secret.

    Empty when this user may not see it, or when it is no engine that we know by its command line.
    """
    for listener in listeners(host, port):
        try:
            raw = Path("/proc", listener.split()[0], "cmdline").read_bytes()
        except OSError:
            continue
        words = raw.decode(errors="replace").rstrip("\0").split("\0")
        starts = [place for place, word in enumerate(words) if word == "serve" or word.endswith("api_server")]
        if starts:
            return without_secrets(words[starts[0] + 1 :])
    return []


def without_secrets(words: list[str]) -> list[str]:
    """The words of a command line less flags that may hold secrets, and their values."""
    kept: list[str] = []
    secret = False
    for word in words:
        if word.startswith("-"):
            secret = bool(SECRET.search(word.split("=")[0]))
        if not secret:
            kept.append(word)
    return kept


def _kernel_addresses(host: str) -> set[str]:
    """The addresses at which a listener is met at `host`, wildcards too, as /proc/net/tcp writes them."""
    wanted = {"0" * 8, "0" * 32}
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return wanted
    for family, _, _, _, address in found:
        packed = socket.inet_pton(family, str(address[0]).partition("%")[0])
        # Words of four bytes, in the order of a little-endian machine.
        text = "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))
        wanted |= {text, _MAPPED + text}
    return wanted


def _told(entry: Path) -> str | None:
    """`pid name` of a process; None when it has ended since."""
    try:
        return f"{entry.name} {(entry / 'comm').read_text().strip()}"
    except OSError:
        return None


def _holds(entry: Path, inodes: set[str]) -> bool:
    try:
        descriptors = list((entry / "fd").iterdir())
    except OSError:
        return False
    return any(_leads_to(descriptor) in inodes for descriptor in descriptors)


def _leads_to(descriptor: Path) -> str | None:
    """What a descriptor stands for; None when it has been closed since."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return None
