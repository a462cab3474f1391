"""`tokenpeak restore`: every node given back to production, whoever had it."""

import sys

import click

from tokenpeak.drive.resolution import Resolution, hosts_path
from tokenpeak.terminal import echo


@click.command(short_help="Bring production back on every node; safe at any time.")
@click.option("--inventory", "inventory_name", default="sim", show_default=True, help="Inventory to give back.")
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
def restore(inventory_name: str, nodes: tuple[str, ...]) -> None:
    """Give the nodes back: engine ended, production as it was recorded, lock broken. Safe at any time."""
    resolution = Resolution(hosts_path(inventory_name))
    # Half a second of imports, while Ansible reads the inventory.
    from tokenpeak.drive.inventory import nodes_by_name
    from tokenpeak.drive.restoration import restoration_of
    from tokenpeak.drive.runner import run_playbook
    from tokenpeak.drive.version import is_another, renewal

    inventory = nodes_by_name(inventory_name, resolution, nodes)
    result = run_playbook("restore.yml", inventory)
    unrestored = 0
    for name, node in result.nodes.items():
        if node.is_not_installed:
            echo(f"{name}: TokenPeak was never put on this node, so there is nothing to give back.")
            continue
        reason = node.unreachable or node.failure or "restore.yml gave no answer"
        restoration = restoration_of(node.answers.get("restore"), reason)
        unrestored += not restoration.restored
        downtime = f" Production was down for {restoration.downtime_s:.1f} s." if restoration.downtime_s else ""
        echo(f"{name}: {'' if restoration.restored else 'NOT restored: '}{restoration.message}{downtime}")
        if "restore" in node.answers and is_another(node.answers["restore"]):
            echo(f"NOTE {name}: {renewal(inventory, name)}")
    if unrestored:
        sys.exit(1)
