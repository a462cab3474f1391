"""`tokenpeak restore`: every node given back to production, whoever had it."""

import sys

import click

from tokenpeak.cli import completed
from tokenpeak.exit_status import ExitStatus
from tokenpeak.sweep.by_name import play
from tokenpeak.terminal import echo


@click.command(short_help="Bring production back on every node; safe at any time.")
@click.option(
    "--inventory",
    "inventory_name",
    type=completed.INVENTORY,
    default="sim",
    show_default=True,
    help="Inventory to give back.",
)
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
def restore(inventory_name: str, nodes: tuple[str, ...]) -> None:
    """Give the nodes back: engine ended, production as it was recorded, lock broken. Safe at any time."""
    inventory, result = play("restore.yml", inventory_name, nodes)
    from tokenpeak.sweep.restoration import restored_by
    from tokenpeak.sweep.version import is_another, renewal

    unrestored = 0
    for name, node in result.nodes.items():
        if node.is_not_installed:
            echo(f"{name}: TokenPeak was never put on this node, so there is nothing to give back.")
            continue
        outcome = restored_by(node)
        unrestored += not outcome.restored
        downtime = f" Production was down for {outcome.downtime_s:.1f} s." if outcome.downtime_s else ""
        echo(f"{name}: {'' if outcome.restored else 'NOT restored: '}{outcome.message}{downtime}")
        if "restore" in node.answers and is_another(node.answers["restore"]):
            echo(f"NOTE {name}: {renewal(inventory, name)}")
    if unrestored:
        sys.exit(ExitStatus.ERROR)
