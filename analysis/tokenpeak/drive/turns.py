"""Whose turn it is: how many nodes work at once, in the order in which they asked.

A node at work has an Ansible and, without load hosts, a load client of its own on this machine. Its turn begins before
its production is stopped and ends when production answers again; a node that waits for another's trial has none.
"""

import os
import threading
from collections import deque

PER_CORE = 4
"""Nodes at work for each core here. Measured, one takes 260 MB (95 of Ansible, 163 of a load client), a quarter of
what a small machine has for each core."""


def default_turns() -> int:
    """How many nodes work at once on this machine unless the user says otherwise."""
    return PER_CORE * (os.cpu_count() or 1)


class Turns:
    """At most `at_once` turns at a time; whoever asked first is next."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._line: deque[object] = deque()
        self._changed = threading.Condition()

    def take(self) -> None:
        """Wait for a turn."""
        me = object()
        with self._changed:
            self._line.append(me)
            self._changed.wait_for(lambda: self._free > 0 and self._line[0] is me)
            self._line.popleft()
            self._free -= 1
            self._changed.notify_all()

    def give_back(self) -> None:
        """End a turn; the first in line has it."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()
