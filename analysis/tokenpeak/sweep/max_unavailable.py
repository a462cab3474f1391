"""Most nodes of a group that may be unavailable at a time: what `tokenpeak_max_unavailable` declares of an inventory.

The groups are those of the inventory: a service, a rack, or any other. A share is of all nodes that the group has,
also of those that a sweep leaves out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenpeak.errors import InventoryError, suggestion
from tokenpeak.sweep.inventory import Inventory

VARIABLE = "tokenpeak_max_unavailable"
_PERCENT = re.compile(r"(\d{1,3})\s*%")


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
    declared = inventory.shared(VARIABLE)
    if declared is None:
        return ()
    if not isinstance(declared, Mapping):
        raise InventoryError(f"{VARIABLE} is {declared!r}; write GROUP: NUMBER or GROUP: 25%.")
    return tuple(_limit(inventory, str(group), value) for group, value in declared.items())


def value_mistake(value: Any) -> str | None:
    """What is wrong with a limit as it is written; None where it can be one."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    if isinstance(value, str) and (found := _PERCENT.fullmatch(value.strip())) and 1 <= int(found[1]) <= 100:
        return None
    return f"{value!r} is no limit; give a number of nodes from 1 on, or a share of the group such as 25%"


def _limit(inventory: Inventory, group: str, value: Any) -> GroupLimit:
    nodes = inventory.groups.get(group)
    if nodes is None:
        raise InventoryError(
            f"{VARIABLE} names the group {group!r}, which inventory {inventory.name} does not have. "
            f"{suggestion(group, sorted(inventory.groups))}"
        )
    if mistake := value_mistake(value):
        raise InventoryError(f"{VARIABLE} of {group}: {mistake}.")
    most = value if isinstance(value, int) else len(nodes) * int(str(value).strip().rstrip("% ")) // 100
    if most < 1:
        raise InventoryError(
            f"{VARIABLE} of {group}: {value} of its {len(nodes)} nodes is less than one node, so that no trial could "
            "begin there. Give a number of nodes, or a larger share."
        )
    return GroupLimit(group=group, nodes=frozenset(nodes), most=most)
