"""Clocks that neither a wrong date nor a suspended machine can fool.

Leases and deadlines are in seconds of CLOCK_BOOTTIME together with the boot they belong to: a changed date moves
nothing, and after a reboot every deadline has passed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Elsewhere than on Linux, where a controller may be, the monotonic clock counts suspension itself."""


def boot_id() -> str:
    """The kernel's random name of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boot_s() -> float:
    """Seconds since this boot, suspension included."""
    return time.clock_gettime(_BOOTTIME)


def date_of(unix_s: object) -> str:
    """An instant as people read it; a file may hold one that no calendar has."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return "a time that cannot be read"


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.02) -> bool:
    """Whether `condition()` came true within `timeout_s`; asked at once, and again at the end."""
    deadline = time.monotonic() + timeout_s
    while True:
        if condition():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(poll_s, max(0.0, deadline - time.monotonic())))
