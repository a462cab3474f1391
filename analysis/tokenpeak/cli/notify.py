"""`tokenpeak notify`: a trial of the receivers that an inventory names."""

import sys

import click

from tokenpeak.exit_status import ExitStatus
from tokenpeak.node.guard import notify as sending
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.sweep.notification import SIDE, receivers_of
from tokenpeak.terminal import echo


@click.command(short_help="Send a test to whom an inventory has notified.")
@click.option(
    "--inventory", "inventory_name", default="sim", show_default=True, help="Inventory whose receivers are meant."
)
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
