"""Concurrency limiter: how many nodes work at once, first come, first served.

A node at work has an Ansible and, without load hosts, a load client of its own on this machine. It holds a slot
from before its production is stopped until production answers again; a node that waits for another's trial holds none.
"""

import os
import threading
from collections import deque

PER_CORE = 4
"""Nodes at work for each core here. Measured, one takes 260 MB (95 of Ansible, 163 of a load client), a quarter of
what a small machine has for each core."""


def default_parallel() -> int:
    """How many nodes work at once on this machine unless the user says otherwise."""
    return PER_CORE * (os.cpu_count() or 1)


class ConcurrencyLimiter:
    """At most `at_once` slots are held at a time; whoever asked first is next."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._line: deque[object] = deque()
        self._changed = threading.Condition()

    def acquire(self) -> None:
        """Wait for a slot."""
        me = object()
        with self._changed:
            self._line.append(me)
            self._changed.wait_for(lambda: self._free > 0 and self._line[0] is me)
            self._line.popleft()
            self._free -= 1
            self._changed.notify_all()

    def release(self) -> None:
        """Free a slot; the first in line gets it."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()
