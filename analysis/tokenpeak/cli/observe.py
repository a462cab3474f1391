"""`tokenpeak observe`: production's own traffic as a workload."""

import sys
from pathlib import Path

import click

from tokenpeak.cli import options
from tokenpeak.errors import ExitStatus
from tokenpeak.files import write_atomically
from tokenpeak.loadgen.traffic.traffic import as_text
from tokenpeak.node.protocol.requests import OBSERVE_MAX_S
from tokenpeak.spec.window import span_s
from tokenpeak.sweep.interrupt import Interrupt, interrupt_on_signals
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.sweep.probe import probe
from tokenpeak.sweep.production_traffic import observe_traffic
from tokenpeak.terminal import echo, echo_text


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> float:
    try:
        seconds = float(str(span_s(value)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not 0 < seconds <= OBSERVE_MAX_S:
        raise click.BadParameter(
            f"{value} is no time to observe for: more than 0 s, and at most {OBSERVE_MAX_S / 3600:g} h"
        )
    return seconds


@click.command(short_help="Read production's traffic off its metrics; stops nothing.")
@options.inventory("Inventory to observe.")
@options.NODES
@click.option("--for", "seconds", default="30m", show_default=True, callback=_seconds, help="How long, as 30m or 2h.")
@click.option("--output", type=options.OUTPUT_FILE, help="Where the traffic is written; printed when not given.")
def observe(inventory_name: str, nodes: tuple[str, ...], seconds: float, output: Path | None) -> None:
    """Read production's own metrics for a while and print its traffic: lengths, arrivals, what prompts share.

    Nothing is stopped or sent, and nothing of any prompt is read. What is printed is a trace: `tokenpeak load --trace`
    replays it, as does a workload `kind: trace`. Of several nodes, it is of the one with most requests.
    """
    inventory = read_inventory(inventory_name, nodes=nodes)
    interrupt = Interrupt()
    with interrupt_on_signals(interrupt, lambda _: None):
        probed = probe(inventory, cancelled=interrupt.gentle)
        for complaint in probed.complaints():
            echo(f"PROBLEM {complaint}", err=True)
        facts = [ready.facts for ready in probed.answered.values()]
        echo(f"Reading the metrics of production for {seconds:g} s; nothing is stopped.", err=True)
        seen = observe_traffic(inventory, facts, seconds, cancelled=interrupt.gentle)
    for name, problem in seen.problems.items():
        echo(f"{name}: {problem}", err=True)
    if (most := seen.busiest) is None:
        sys.exit(ExitStatus.ERROR)
    for traffic in seen.nodes.values():
        echo(traffic.words() + ("" if traffic is most or len(seen.nodes) == 1 else " (not printed)"), err=True)
    if output is None:
        echo_text(as_text(most))
    else:
        write_atomically(output, as_text(most) + "\n")
