"""Concurrency limiter: how many nodes work at once, and how many of a group, first come, first served.

A node at work has a task of Ansible, its lease's process and a load client of its own on this machine. It holds a slot
from before its production is stopped until production answers again; a node that waits for another's trial holds none.
A node whose production did not come back frees its slot, and goes on to count in its groups.
"""

import os
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tokenpeak.sweep.max_unavailable import GroupLimit

PER_CORE = 4
"""Nodes at work for each core here: a quarter of a core for each load client, whose own delay must stay small.
Measured at 50 nodes, one takes 26 MiB of the controller's and 82 MiB of a load client's memory."""


def default_parallel() -> int:
    """How many nodes work at once on this machine unless the user says otherwise."""
    return PER_CORE * (os.cpu_count() or 1)


@dataclass(frozen=True, eq=False)
class _Waiting:
    node: str
    is_to_restore: bool


class ConcurrencyLimiter:
    """At most `at_once` slots are held at a time, and no more of a group than its limit.

    Whoever asked first is next, but for those whose group has no room: they keep nobody else waiting. `down` are nodes
    that do not serve although nobody here has stopped them.
    """

    def __init__(self, at_once: int, limits: Sequence[GroupLimit] = (), down: Collection[str] = ()) -> None:
        self._free = at_once
        self._limits = tuple(limits)
        self._held: set[str] = set()
        self._down = set(down)
        self._line: deque[_Waiting] = deque()
        self._changed = threading.Condition()

    def acquire(self, node: str, *, to_restore: bool = False) -> str | None:
        """Wait for a slot; a reason instead where the node may have none before others serve that nobody restores.

        `to_restore`: production is only brought back, which no group forbids.
        """
        me = _Waiting(node, to_restore)
        with self._changed:
            self._line.append(me)
            try:
                self._changed.wait_for(lambda: self._is_next(me) or self._never(me))
                if reason := self._never(me):
                    return reason
                self._free -= 1
                self._held.add(node)
            finally:
                self._line.remove(me)
                self._changed.notify_all()
        return None

    def release(self, node: str, *, serves: bool = True) -> None:
        """Free the node's slot; the first in line gets it. Unless it `serves`, the node counts in its groups."""
        with self._changed:
            self._free += 1
            self._held.discard(node)
            (self._down.discard if serves else self._down.add)(node)
            self._changed.notify_all()

    def _is_next(self, me: _Waiting) -> bool:
        return self._free > 0 and next((each for each in self._line if self._has_room(each)), None) is me

    def _has_room(self, one: _Waiting) -> bool:
        return self._forbidding(one, frozenset(self._held | self._down)) is None

    def _never(self, one: _Waiting) -> str | None:
        return self._forbidding(one, frozenset(self._down - self._held))

    def _forbidding(self, one: _Waiting, unavailable: frozenset[str]) -> str | None:
        if one.is_to_restore or one.node in self._down:
            return None
        found = (limit.forbidding(unavailable, one.node) for limit in self._limits)
        return next((reason for reason in found if reason is not None), None)
