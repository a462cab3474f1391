"""`tokenpeak uninstall`: everything of TokenPeak's taken off the nodes."""

import sys

import click

from tokenpeak.cli import completed
from tokenpeak.exit_status import ExitStatus
from tokenpeak.node.protocol.answers import UninstallAnswer
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.terminal import echo


@click.command(short_help="Take TokenPeak off the nodes; refused while a trial has one.")
@click.option(
    "--inventory", "inventory_name", type=completed.INVENTORY, required=True, help="Inventory to take it off."
)
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
@click.option(
    "--user", help="Log in as this user instead of the inventory's ansible_user; it must be root or become it."
)
@click.option("--load-hosts", is_flag=True, help="Remove the load client's folder from the load hosts too.")
def uninstall(inventory_name: str, nodes: tuple[str, ...], user: str | None, *, load_hosts: bool) -> None:
    """Remove script, state folder, guard, guard command and what an engine left. A node with a trial stays as it is.

    Production is not touched. What stays on a node is said, with the reason.
    """
    inventory = read_inventory(inventory_name, nodes=nodes)
    extravars = {} if user is None else {"ansible_user": user}
    is_done = True
    for name, node in run_playbook("uninstall.yml", inventory, extravars=extravars).nodes.items():
        if node.is_not_installed:
            echo(f"{name}: TokenPeak is not on this node.")
            continue
        answer = node.answer(UninstallAnswer) or UninstallAnswer()
        is_done = is_done and node.ok and bool(answer.removed)
        echo(f"{name}: {node.unreachable or node.failure or 'removed'}")
        for words in answer.left:
            echo(f"  {words}")
    if load_hosts and inventory.load_hosts:
        hosts = [host.name for host in inventory.load_hosts]
        for name, host in run_playbook("uninstall_load_hosts.yml", inventory, nodes=hosts).nodes.items():
            is_done = is_done and host.ok
            echo(f"{name}: {host.unreachable or host.failure or 'load client removed'}")
    if not is_done:
        sys.exit(ExitStatus.ERROR)
