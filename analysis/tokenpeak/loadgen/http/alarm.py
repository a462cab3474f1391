"""Timer finer than the event loop's.

uvloop rounds its timers to whole milliseconds. A Linux timerfd wakes the loop through a file descriptor within the
kernel's slack of some tens of microseconds; elsewhere the loop's own timer has to do.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from time import perf_counter

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


class Alarm:
    """Calls `callback` once at the moment given to `set`, which replaces an earlier one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._descriptor = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._ring)

    def set(self, moment: float) -> None:
        """Ring at `moment`, in `perf_counter` seconds; a moment that has passed rings at once."""
        delay = max(moment - perf_counter(), 1e-6)
        if self._descriptor >= 0:
            nanoseconds = int(delay * 1e9)
            value = _Timespec(nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
            self._libc.timerfd_settime(self._descriptor, 0, ctypes.byref(_Itimerspec(_Timespec(), value)), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(delay, self._callback)

    def _ring(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            # Set again after it had expired: the new moment is still to come.
            return
        self._callback()

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
