"""Model stores that nodes share: production of many nodes must not read one of them in the same moment.

A node of a store has a longer lease than the one before it, so that after the end of a controller their guards start
production one after the other. Where this controller gives nodes back, only so many of a store start at once.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tokenpeak.errors import InventoryError, suggestion
from tokenpeak.sweep.inventory import Inventory

VARIABLE = "tokenpeak_model_store"
KEYS: Mapping[str, tuple[str, str]] = {
    "name": ("str", "The store, the same for every node that reads it."),
    "stagger_s": ("float", "By how many seconds guards start production after one another; 10 when absent."),
    "most_s": ("float", "How much longer than the lease the last of them may wait; 240 when absent."),
    "at_once": ("int", "How many start at once where the controller gives nodes back; any number when absent."),
}
"""Key of tokenpeak_model_store → its type, and what it is."""
_STAGGER_S = 10.0
_MOST_S = 240.0
_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class ModelStore:
    """A store, and the nodes of an inventory that share it, in the order in which they come back."""

    name: str
    nodes: tuple[str, ...]
    stagger_s: float
    most_s: float
    at_once: int | None

    def offset_s(self, node: str) -> float:
        """How much longer than the sweep's lease the node's is: even steps, smaller where `most_s` needs that."""
        last = max(1, len(self.nodes) - 1)
        return self.nodes.index(node) * min(self.stagger_s, self.most_s / last)


def model_stores(inventory: Inventory) -> tuple[ModelStore, ...]:
    """The stores that nodes of the inventory declare; raises InventoryError for one that cannot be."""
    declared: dict[str, Mapping[str, Any]] = {}
    nodes: dict[str, list[str]] = {}
    for node in inventory.nodes:
        value = node.variables.get(VARIABLE)
        if value is None:
            continue
        for _, mistake in value_mistakes(value):
            end = "" if mistake.endswith(("?", ".")) else "."
            raise InventoryError(f"{VARIABLE} of node {node.name}: {mistake}{end}")
        name = str(value["name"])
        if declared.setdefault(name, value) != value:
            raise InventoryError(
                f"Nodes of inventory {inventory.name} differ in {VARIABLE} of the store {name}: give it once, in the "
                "vars of their group."
            )
        nodes.setdefault(name, []).append(node.name)
    return tuple(
        ModelStore(
            name=name,
            nodes=tuple(nodes[name]),
            stagger_s=float(value.get("stagger_s", _STAGGER_S)),
            most_s=float(value.get("most_s", _MOST_S)),
            at_once=value.get("at_once"),
        )
        for name, value in declared.items()
    )


def lease_offset_s(inventory: Inventory, node: str) -> float:
    """How much longer than the sweep's lease the node's is; 0 for one without a store."""
    return next((store.offset_s(node) for store in model_stores(inventory) if node in store.nodes), 0.0)


def value_mistakes(value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with a store as it is written: the place in it, and the sentence."""
    if not isinstance(value, Mapping):
        yield (), f"{value!r} is no store; write {{name: NAME, stagger_s: 10, most_s: 240, at_once: 4}}"
        return
    for key, given in value.items():
        if key not in KEYS:
            yield (str(key),), f"{VARIABLE} has no key {key}. {suggestion(str(key), KEYS)}"
        elif "{{" in str(given):
            continue
        elif key == "at_once" and (type(given) is not int or given < 1):
            yield (key,), f"at_once is {given!r}; give a number of nodes from 1 on"
        elif key in ("stagger_s", "most_s") and (type(given) not in (int, float) or given < 0):
            yield (key,), f"{key} is {given!r}; give seconds, 0 or more"
    if not value.get("name"):
        yield (), f"{VARIABLE} has no name; give the one that its nodes share"


class StoreLimiter:
    """At most `at_once` nodes of a store are given back at a time."""

    def __init__(self, inventory: Inventory) -> None:
        self._free: dict[str, threading.Semaphore] = {}
        for store in model_stores(inventory):
            if store.at_once is not None:
                self._free |= dict.fromkeys(store.nodes, threading.Semaphore(store.at_once))

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
