"""Memory of a process with all that it starts, from Linux's /proc."""

import subprocess
import time
from collections import defaultdict
from pathlib import Path

EVERY_S = 0.3


def peak_memory(process: subprocess.Popen[bytes]) -> int:
    """Wait for the process; the most bytes that it and its descendants held at a time, what they share counted once."""
    most = 0
    while process.poll() is None:
        most = max(most, sum(map(held_bytes, descendants(process.pid))))
        time.sleep(EVERY_S)
    return most


def descendants(pid: int) -> list[int]:
    """The process and all that it started, as far as they run."""
    children = defaultdict(list)
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything; after it come the state and the parent.
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children[parent].append(int(status.parent.name))
    found = [pid]
    for each in found:
        found += children[each]
    return found


def held_bytes(pid: int) -> int:
    """The process's proportional share of its memory; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
