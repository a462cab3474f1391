"""`tokenpeak install`, `uninstall` and `notify`: what is put on the nodes and taken off, and who hears of trouble."""

import sys

import click

from tokenpeak.cli import options
from tokenpeak.exit_status import ExitStatus
from tokenpeak.node.guard import notify as sending
from tokenpeak.node.protocol.answers import UninstallAnswer
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.installation import install as put
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.sweep.notification import SIDE, receivers_of
from tokenpeak.sweep.secret import rotate as replace_secret
from tokenpeak.terminal import echo


@click.command(short_help="Put the node script and its guard on the nodes.")
@options.inventory("Inventory to install on.")
@options.NODES
@click.option(
    "--user", help="Log in as this user instead of the inventory's ansible_user; it must be root or become it."
)
@click.option(
    "--rotate", is_flag=True, help="Make a new secret of this controller first; the old one is removed from the nodes."
)
def install(inventory_name: str, nodes: tuple[str, ...], user: str | None, *, rotate: bool) -> None:
    """Put TokenPeak's command, its guard and, where the inventory names it, the guard command on the nodes."""
    inventory = read_inventory(inventory_name, nodes=nodes)
    if rotate:
        replace_secret(inventory)
        echo("This controller has a new secret.")
    result = put(inventory, nodes=[node.name for node in inventory.nodes], user=user)
    for name, node in result.nodes.items():
        echo(f"{name}: {'installed' if node.ok else node.unreachable or node.failure}")
        if rotate and not node.ok:
            echo(
                f"{name}: still holds the old secret, which no trial uses any more; it is removed there by "
                f"tokenpeak install --inventory {inventory_name}, once the node can be reached."
            )
    if rotate:
        echo("Nodes of other inventories get the new secret, and lose the old one, when they are next installed.")
    if not all(node.ok for node in result.nodes.values()):
        sys.exit(ExitStatus.ERROR)


@click.command(short_help="Take TokenPeak off the nodes; refused while a trial has one.")
@options.inventory("Inventory to take it off.", required=True)
@options.NODES
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


@click.command(short_help="Send a test to whom an inventory has notified.")
@options.inventory("Inventory whose receivers are meant.")
def notify(inventory_name: str) -> None:
    """Send the event `test` once, from this machine, to each receiver of tokenpeak_notify, and say who got it.

    Receivers that only nodes call are not called; `tokenpeak install` looks at those on the nodes. Exit status 1 where
    one did not get it.
    """
    inventory = read_inventory(inventory_name)
    declared = receivers_of(inventory.nodes)
    receivers = sending.called(declared, "test", SIDE)
    for receiver in declared:
        if receiver not in receivers:
            echo(f"{sending.name_of(receiver)}: is called from nodes only")
    if not declared:
        echo(f"Inventory {inventory.name} names nobody: give tokenpeak_notify (see playbooks/README.md).")
        return
    sent = sending.event("test", "A test of tokenpeak notify: nothing happened.", source=SIDE, inventory=inventory.name)
    ended = sending.send(receivers, sent, waits_s=(0.0,))
    for receiver, problem in zip(receivers, ended, strict=True):
        echo(f"{sending.name_of(receiver)}: {problem or 'got it'}")
    if any(ended):
        sys.exit(ExitStatus.ERROR)
