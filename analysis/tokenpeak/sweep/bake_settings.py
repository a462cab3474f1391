"""Bake of an inventory: how long production is observed before and after an apply, and by what it is judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenpeak.errors import InventoryError
from tokenpeak.node.protocol.apply_requests import CONCURRENCY_MAX, OBSERVE_MAX_S
from tokenpeak.results.bake import SPANS
from tokenpeak.sweep.inventory import Node

BAKE_S = 300.0
MARGIN = 0.1
SHORTEST_PERIOD_S = 0.5
MOST_ROUNDS = 3
"""So often as many seconds are observed again while they decide nothing."""
_KEYS = ("bake_s", "margin", "settle_s", "test_load")


@dataclass(frozen=True, kw_only=True)
class BakeSettings:
    """`concurrency` is that of the test load, 0 for none; `margin` by what share a mean must be longer to count."""

    bake_s: float = BAKE_S
    settle_s: float = 30.0
    margin: float = MARGIN
    concurrency: int = 0

    @property
    def period_s(self) -> float:
        """How often metrics are read."""
        return max(SHORTEST_PERIOD_S, self.bake_s / (2 * SPANS))


def bake_settings(node: Node, bake_s: float | None = None) -> BakeSettings:
    """What the inventory's tokenpeak_bake says for a node; `bake_s` is what was asked for instead."""
    declared: Any = node.variables.get("tokenpeak_bake") or {}
    if not isinstance(declared, Mapping) or set(declared) - {*_KEYS}:
        raise InventoryError(f"tokenpeak_bake of node {node.name} is {declared!r}; its keys are {', '.join(_KEYS)}.")
    load = declared.get("test_load", False)
    concurrency = 2 if load is True else load or 0
    found = BakeSettings(
        bake_s=bake_s if bake_s is not None else _number(node, declared, "bake_s", BAKE_S),
        settle_s=_number(node, declared, "settle_s", 30.0),
        margin=_number(node, declared, "margin", MARGIN),
        concurrency=concurrency if isinstance(concurrency, int) else -1,
    )
    if not 0 <= found.concurrency <= CONCURRENCY_MAX:
        raise InventoryError(
            f"tokenpeak_bake.test_load of node {node.name} is {load!r}; give true, or 1 to {CONCURRENCY_MAX} requests "
            "at a time."
        )
    if not 5 <= found.bake_s <= OBSERVE_MAX_S / 2 or not 0 <= found.settle_s <= OBSERVE_MAX_S / 2:
        raise InventoryError(f"A bake of node {node.name} is to take {found.bake_s:g} s; 5 s to an hour are possible.")
    return found


def _number(node: Node, declared: Mapping[str, Any], key: str, default: float) -> float:
    value = declared.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InventoryError(f"tokenpeak_bake.{key} of node {node.name} is {value!r}; give a number.")
    return float(value)
