"""Rights of an apply: the login and the command by which it changes production, which a trial's user does not have."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenpeak.errors import InventoryError
from tokenpeak.sweep.inventory import Inventory, Node

ROOT = "root"


@dataclass(frozen=True, kw_only=True)
class ApplyRights:
    """The inventory as an apply logs in to it, and what its playbooks are given for that."""

    inventory: Inventory
    extravars: Mapping[str, Any]


def apply_rights(inventory: Inventory, user: str | None) -> ApplyRights:
    """How applies log in: as the inventory's user where it has all rights, else as `user`: root, or a sudoers line's.

    Raises InventoryError where a trial's user would be asked to do it.
    """
    limited = [node for node in inventory.nodes if node.guard_command]
    without = [node.name for node in limited if user != ROOT and not (user and node.apply_command)]
    if without:
        raise InventoryError(
            f"The user of {', '.join(without)} may run trials and not change production (tokenpeak_guard_command). "
            "Apply as root, INSTALL_USER=root, or declare tokenpeak_apply_command with a sudoers line of its own and "
            "give that user (playbooks/README.md, Rights)."
        )
    if user is None:
        return ApplyRights(inventory=inventory, extravars={})
    nodes = tuple(_as_user(node, user) for node in inventory.nodes)
    commands = {node.guard_command for node in nodes}
    if len(commands) > 1:
        raise InventoryError("Nodes differ in tokenpeak_apply_command: apply to them one after the other, by NODE=.")
    extravars = {"ansible_user": user, "tokenpeak_guard_command": commands.pop()}
    return ApplyRights(inventory=replace(inventory, nodes=nodes), extravars=extravars)


def _as_user(node: Node, user: str) -> Node:
    """The node as that user logs in, by root's own command or by the one of applies."""
    command = None if user == ROOT else node.apply_command
    return replace(node, variables={**node.variables, "ansible_user": user, "tokenpeak_guard_command": command})
