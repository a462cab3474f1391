"""`tokenpeak restore`: every node given back to production, whoever had it."""

import sys

import click

from tokenpeak.cli import completed
from tokenpeak.exit_status import ExitStatus
from tokenpeak.sweep.ansible.by_name import play
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
@click.option(
    "--accept", is_flag=True, help="Take production as it serves now, though it served another model when recorded."
)
@click.option("--release", is_flag=True, help="Let sweeps have the nodes again that a restore has taken from one.")
def restore(inventory_name: str, nodes: tuple[str, ...], accept: bool, release: bool) -> None:
    """Give the nodes back: engine ended, production as it was recorded, lock broken. Safe at any time.

    A node that a running sweep had is held: no trial begins there until --release.
    """
    asked = {"tokenpeak_restore": {"accept": accept, "release": release}} if accept or release else {}
    inventory, result = play("restore.yml", inventory_name, nodes, asked)
    from tokenpeak.node.production.answering import standing
    from tokenpeak.sweep.ansible.result import restored_by
    from tokenpeak.sweep.installation import is_another, renewal

    unrestored = 0
    for name, node in result.nodes.items():
        if node.is_not_installed:
            echo(f"{name}: TokenPeak was never put on this node, so there is nothing to give back.")
            continue
        outcome = restored_by(node)
        unrestored += not outcome.restored
        downtime = f" Production was down for {outcome.downtime_s:.1f} s." if outcome.downtime_s else ""
        how = "NOT restored" if outcome.restored is False else standing(outcome.restored)
        echo(f"{name}: {'' if outcome.restored else f'{how}: '}{outcome.message}{downtime}")
        if "restore" in node.answers and is_another(node.answers["restore"]):
            echo(f"NOTE {name}: {renewal(inventory, name)}")
    if unrestored:
        sys.exit(ExitStatus.ERROR)
