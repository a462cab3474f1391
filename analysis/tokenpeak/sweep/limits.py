"""Limits of a sweep: nodes at work at once, nodes of a group unavailable, of a model store starting, and failures.

Groups are those of the inventory, a service, a rack, or any other; a share is of all nodes of a group, also of those
that a sweep leaves out. A node at work has a task of Ansible, its lease's process and a load client of its own on this
machine. It holds a slot from before its production is stopped until production answers again; a node that waits for
another's trial holds none. A node whose production did not come back frees its slot, and counts in its groups.

Production of many nodes must not read one model store in the same moment: a node of a store has a longer lease than the
one before it, so that after the end of a controller their guards start production one after the other. Where this
controller gives nodes back, only so many of a store start at once.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tokenpeak.errors import InventoryError, suggestion
from tokenpeak.sweep.inventory.checks import parsed
from tokenpeak.sweep.inventory.nodes import Inventory
from tokenpeak.sweep.inventory.variables import ModelStore

_MAX_UNAVAILABLE = "tokenpeak_max_unavailable"
PER_CORE = 4
"""Nodes at work for each core here: a quarter of a core for each load client, whose own delay must stay small.
Measured at 50 nodes, one takes 26 MiB of the controller's and 82 MiB of a load client's memory."""
FEWEST_TRIALS = 10
"""Of fewer trials no share is taken: one bad node of a few says nothing of the others."""
FEWEST_NODES = 3
"""On fewer nodes it is these nodes that are broken, and each is left out by itself."""
_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class GroupLimit:
    """A group of the inventory, and how many of its nodes may be unavailable at a time."""

    group: str
    nodes: frozenset[str]
    most: int

    def forbidding(self, unavailable: frozenset[str], node: str) -> str | None:
        """Why `node` may not become unavailable beside those that are; None where it may."""
        others = sorted(self.nodes & unavailable - {node})
        if node not in self.nodes or len(others) < self.most:
            return None
        return f"{self.most} of the {len(self.nodes)} nodes of {self.group} may be unavailable: {', '.join(others)}"


def group_limits(inventory: Inventory) -> tuple[GroupLimit, ...]:
    """The limits that the inventory declares; raises InventoryError for one that no group or number can be."""
    inventory.shared(_MAX_UNAVAILABLE)
    declared = parsed(inventory.nodes[0], _MAX_UNAVAILABLE) or {}
    return tuple(_limit(inventory, group, value) for group, value in declared.items())


def _limit(inventory: Inventory, group: str, value: int | str) -> GroupLimit:
    nodes = inventory.groups.get(group)
    if nodes is None:
        raise InventoryError(
            f"{_MAX_UNAVAILABLE} names the group {group!r}, which inventory {inventory.name} does not have. "
            f"{suggestion(group, sorted(inventory.groups))}"
        )
    most = value if isinstance(value, int) else len(nodes) * int(value.strip().rstrip("% ")) // 100
    if most < 1:
        raise InventoryError(
            f"{_MAX_UNAVAILABLE} of {group}: {value} of its {len(nodes)} nodes is less than one node, so that no trial "
            "could begin there. Give a number of nodes, or a larger share."
        )
    return GroupLimit(group=group, nodes=frozenset(nodes), most=most)


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
        reasons = (limit.forbidding(unavailable, one.node) for limit in self._limits)
        return next((reason for reason in reasons if reason is not None), None)


class NodeFailures:
    """Counts trials and those that failed for the node's own reasons; safe to use from several threads."""

    def __init__(self, most_share: float) -> None:
        self._most_share = most_share
        self._trials = 0
        self._failed: dict[str, int] = {}
        self._lock = threading.Lock()

    def count(self, node: str, trouble: str | None) -> None:
        """A trial on the node has ended, or could not begin there; `trouble` is what was wrong with the node."""
        with self._lock:
            self._trials += 1
            if trouble is not None:
                self._failed[node] = self._failed.get(node, 0) + 1

    @property
    def too_many(self) -> str | None:
        """Why no further trial begins; None while the share is not exceeded."""
        with self._lock:
            failed, trials, nodes = sum(self._failed.values()), self._trials, len(self._failed)
        if trials < FEWEST_TRIALS or nodes < FEWEST_NODES or failed <= self._most_share * trials:
            return None
        return (
            f"No further trial begins: {failed} of {trials} trials, on {nodes} nodes, failed for reasons of the nodes; "
            f"max_node_failures is {self._most_share:.0%}. See what these nodes share, then resume the sweep."
        )


@dataclass(frozen=True, kw_only=True)
class SharedStore:
    """A model store, and the nodes of an inventory that share it, in the order in which they come back."""

    declared: ModelStore
    nodes: tuple[str, ...]

    def offset_s(self, node: str) -> float:
        """How much longer than the sweep's lease the node's is: even steps, smaller where `most_s` needs that."""
        last = max(1, len(self.nodes) - 1)
        return self.nodes.index(node) * min(self.declared.stagger_s, self.declared.most_s / last)


def model_stores(inventory: Inventory) -> tuple[SharedStore, ...]:
    """The stores that nodes of the inventory declare; raises InventoryError for one that cannot be."""
    declared: dict[str, ModelStore] = {}
    nodes: dict[str, list[str]] = {}
    for node in inventory.nodes:
        store: ModelStore | None = parsed(node, "tokenpeak_model_store")
        if store is None:
            continue
        if declared.setdefault(store.name, store) != store:
            raise InventoryError(
                f"Nodes of inventory {inventory.name} differ in tokenpeak_model_store of the store {store.name}: give "
                "it once, in the vars of their group."
            )
        nodes.setdefault(store.name, []).append(node.name)
    return tuple(SharedStore(declared=store, nodes=tuple(nodes[name])) for name, store in declared.items())


def lease_offset_s(inventory: Inventory, node: str) -> float:
    """How much longer than the sweep's lease the node's is; 0 for one without a store."""
    return next((store.offset_s(node) for store in model_stores(inventory) if node in store.nodes), 0.0)


class StoreLimiter:
    """At most `at_once` nodes of a store are given back at a time."""

    def __init__(self, inventory: Inventory) -> None:
        self._free: dict[str, threading.Semaphore] = {}
        for store in model_stores(inventory):
            if store.declared.at_once is not None:
                self._free |= dict.fromkeys(store.nodes, threading.Semaphore(store.declared.at_once))

    @contextmanager
    def restoring(self, node: str, is_over: Callable[[], bool]) -> Iterator[None]:
        """Wait until the node may be given back, or `is_over` says that nothing is waited for any more."""
        free = self._free.get(node)
        is_held = False
        while free is not None and not is_held and not is_over():
            is_held = free.acquire(timeout=_POLL_S)
        try:
            yield
        finally:
            if free is not None and is_held:
                free.release()
