"""`tokenpeak install`: the one step that needs root on the nodes, where a trial itself is to need less."""

import sys

import click

from tokenpeak.cli import completed
from tokenpeak.exit_status import ExitStatus
from tokenpeak.sweep.installation import install as put
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.sweep.secret import rotate as replace_secret
from tokenpeak.terminal import echo


@click.command(short_help="Put the node script and its guard on the nodes.")
@click.option(
    "--inventory",
    "inventory_name",
    type=completed.INVENTORY,
    default="sim",
    show_default=True,
    help="Inventory to install on.",
)
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
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
                f"make install INVENTORY={inventory_name}, once the node can be reached."
            )
    if rotate:
        echo("Nodes of other inventories get the new secret, and lose the old one, when they are next installed.")
    if not all(node.ok for node in result.nodes.values()):
        sys.exit(ExitStatus.ERROR)
