"""Playbooks on nodes by their names alone: for what must be quick, and work whatever variables of other nodes say."""

from types import MappingProxyType
from typing import TYPE_CHECKING

from tokenpeak.sweep.inventory.nodes import Resolution, hosts_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from tokenpeak.sweep.ansible.login_failures import Login
    from tokenpeak.sweep.ansible.runner import PlaybookResult
    from tokenpeak.sweep.inventory.nodes import Inventory


def play(
    playbook: str, inventory_name: str, nodes: tuple[str, ...], extravars: "Mapping[str, Any]" = MappingProxyType({})
) -> "tuple[Inventory, PlaybookResult]":
    """Run `playbook` on the nodes of these names, all of the inventory when empty.

    Given names are handed to Ansible as they are, without resolving the inventory first, which takes as long as the
    playbook. They are patterns to Ansible: the playbook ends for each host whose name is not among `tokenpeak_only`.
    Raises InventoryError naming the nearest where the inventory has no such node, NodeError when Ansible could not run.
    """
    path = hosts_path(inventory_name)
    resolution = None if nodes else Resolution(path)
    # Imported while Ansible reads the inventory.
    from tokenpeak.errors import NodeError
    from tokenpeak.sweep.ansible.runner import run_playbook
    from tokenpeak.sweep.inventory.nodes import Inventory, Node, nodes_by_name

    if resolution is not None:
        inventory = nodes_by_name(inventory_name, resolution)
        return inventory, run_playbook(playbook, inventory, extravars=extravars, logins=lambda: _logins(path, nodes))
    given = Inventory(
        name=inventory_name, hosts_path=path, nodes=tuple(Node(name=name, variables={}) for name in nodes)
    )
    try:
        result = run_playbook(
            playbook,
            given,
            extravars={**extravars, "tokenpeak_only": list(nodes)},
            logins=lambda: _logins(path, nodes),
        )
    except NodeError:
        nodes_by_name(inventory_name, Resolution(path), nodes)
        raise
    if any(node.ok and not node.has_run for node in result.nodes.values()):
        nodes_by_name(inventory_name, Resolution(path), nodes)
    return given, result


def _logins(path: "Path", nodes: tuple[str, ...]) -> "Mapping[str, Login]":
    """How hosts are logged in to, for the words about one that failed; none where the inventory cannot be read."""
    from tokenpeak.errors import InventoryError
    from tokenpeak.sweep.ansible.login_failures import LOGIN_VARIABLES, logins_of

    try:
        return logins_of(Resolution(path, wanted=LOGIN_VARIABLES, nodes=nodes).answer()["variables"])
    except InventoryError:
        return {}
