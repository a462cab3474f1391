"""Playbooks on nodes by their names alone: for what must be quick, and work whatever variables of other nodes say."""

from typing import TYPE_CHECKING

from tokenpeak.sweep.resolution import Resolution, hosts_path

if TYPE_CHECKING:
    from tokenpeak.sweep.inventory import Inventory
    from tokenpeak.sweep.runner import PlaybookResult


def play(playbook: str, inventory_name: str, nodes: tuple[str, ...]) -> "tuple[Inventory, PlaybookResult]":
    """Run `playbook` on the nodes of these names, all of the inventory when empty.

    Given names are handed to Ansible as they are, without resolving the inventory first, which takes as long as the
    playbook. They are patterns to Ansible: the playbook ends for each host whose name is not among `tokenpeak_only`.
    Raises InventoryError naming the nearest where the inventory has no such node, NodeError when Ansible could not run.
    """
    path = hosts_path(inventory_name)
    resolution = None if nodes else Resolution(path)
    # Imported while Ansible reads the inventory.
    from tokenpeak.errors import NodeError
    from tokenpeak.sweep.inventory import Inventory, Node, nodes_by_name
    from tokenpeak.sweep.runner import run_playbook

    if resolution is not None:
        inventory = nodes_by_name(inventory_name, resolution)
        return inventory, run_playbook(playbook, inventory)
    given = Inventory(
        name=inventory_name, hosts_path=path, nodes=tuple(Node(name=name, variables={}) for name in nodes)
    )
    try:
        result = run_playbook(playbook, given, extravars={"tokenpeak_only": list(nodes)})
    except NodeError:
        nodes_by_name(inventory_name, Resolution(path), nodes)
        raise
    if any(node.ok and not node.has_run for node in result.nodes.values()):
        nodes_by_name(inventory_name, Resolution(path), nodes)
    return given, result
