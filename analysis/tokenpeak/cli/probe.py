"""`tokenpeak probe`: what the nodes of an inventory are, and what would keep a trial from running there."""

import json
import sys

import click
from rich.console import Console
from rich.table import Table

from tokenpeak.drive.inventory import read_inventory
from tokenpeak.drive.probe import Probe
from tokenpeak.drive.probe import probe as probe_nodes
from tokenpeak.drive.stop import Stop, stop_on_signals
from tokenpeak.records import NodeFacts


@click.command()
@click.option("--inventory", "inventory_name", default="sim", show_default=True, help="Inventory to probe.")
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people or for machines.",
)
def probe(inventory_name: str, nodes: tuple[str, ...], style: str) -> None:
    """Look at each node: hardware, production, engine, free port. Stops nothing."""
    inventory = read_inventory(inventory_name).limited_to(nodes)
    stop = Stop()
    with stop_on_signals(stop, lambda _: None):
        found = probe_nodes(inventory, cancelled=stop.gentle)
    if style == "json":
        click.echo(json.dumps(_as_json(found), indent=2))
    else:
        Console().print(_table(found))
        for complaint in found.complaints():
            click.echo(f"PROBLEM {complaint}")
    if found.complaints():
        sys.exit(1)


def _as_json(found: Probe) -> dict[str, object]:
    return {
        "nodes": [ready.facts.model_dump(mode="json") for ready in found.answered.values()],
        "unreachable": dict(found.unreachable),
        "failed": dict(found.failed),
    }


def _table(found: Probe) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("node", "hardware", "memory", "engine", "production", "port free"):
        table.add_column(title)
    for ready in found.answered.values():
        facts = ready.facts
        table.add_row(
            facts.node + (" (simulated)" if facts.simulated else ""),
            facts.hardware,
            _memory(facts),
            facts.engine_version or "none",
            _production(facts),
            {True: "yes", False: "no", None: "?"}[facts.engine_port_free],
        )
    return table


def _memory(facts: NodeFacts) -> str:
    vram = [gpu.vram_bytes for gpu in facts.gpus if gpu.vram_bytes]
    if vram:
        return f"{len(vram)} × {vram[0] / 2**30:.0f} GiB"
    return f"{facts.memory_bytes / 2**30:.0f} GiB RAM" if facts.memory_bytes else "?"


def _production(facts: NodeFacts) -> str:
    if facts.production is None:
        return "none"
    state = "serves" if facts.production.running else "is down:"
    return f"{facts.production.manager} {state} {facts.production.model or facts.production.unit or ''}".strip()
