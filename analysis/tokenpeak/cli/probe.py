"""`tokenpeak probe`: what the nodes of an inventory are, and what would keep a trial from running there."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import click

from tokenpeak.cli import options
from tokenpeak.console import SafeConsole, SafeTable
from tokenpeak.errors import NodeError
from tokenpeak.exit_status import ExitStatus
from tokenpeak.node.engine.builds import ONLY
from tokenpeak.records import NodeFacts
from tokenpeak.sweep.interrupt import Interrupt, interrupt_on_signals
from tokenpeak.sweep.inventory.nodes import Inventory, read_inventory
from tokenpeak.sweep.probe import Probe
from tokenpeak.sweep.probe import probe as probe_nodes
from tokenpeak.sweep.trial.load_hosts import prepare_load_hosts
from tokenpeak.terminal import echo_lines, echo_text


@click.command(short_help="Put the node script on the nodes and look; stops nothing.")
@options.inventory("Inventory to probe.")
@options.NODES
@options.style()
def probe(inventory_name: str, nodes: tuple[str, ...], style: str) -> None:
    """Put TokenPeak's command on each node and look: hardware, production, engine, free port. Stops nothing."""
    inventory = read_inventory(inventory_name, nodes=nodes)
    interrupt = Interrupt()
    with interrupt_on_signals(interrupt, lambda _: None):
        found = probe_nodes(inventory, cancelled=interrupt.gentle)
        load = _load_hosts(inventory, interrupt)
    if style == "json":
        echo_text(json.dumps({**_as_json(found), "load_hosts": load}, indent=2))
    else:
        SafeConsole().print(_table(found))
        echo_lines((*_power(found), *_missing_builds(found)))
        echo_lines(f"PROBLEM {complaint}" for complaint in found.complaints())
        echo_lines(f"PROBLEM {problem}" if problem else f"{name} offers load" for name, problem in load.items())
    if found.complaints() or any(load.values()):
        sys.exit(ExitStatus.ERROR)


def _load_hosts(inventory: Inventory, interrupt: Interrupt) -> dict[str, str | None]:
    """Each load host, and what is wrong with it or None."""
    found: dict[str, str | None] = {}
    for host in inventory.load_hosts:
        try:
            prepare_load_hosts(replace(inventory, load_hosts=(host,)), say=lambda _: None, cancelled=interrupt.gentle)
            found[host.name] = None
        except NodeError as error:
            found[host.name] = str(error)
    return found


def _as_json(found: Probe) -> dict[str, object]:
    return {
        "nodes": [ready.facts.model_dump(mode="json") for ready in found.answered.values()],
        "unreachable": dict(found.unreachable),
        "failed": dict(found.failed),
    }


def _table(found: Probe) -> SafeTable:
    table = SafeTable(box=None, pad_edge=False)
    for title in ("node", "hardware", "memory", "engine", "production", "port free"):
        table.add_column(title, overflow="fold")
    for ready in found.answered.values():
        facts = ready.facts
        table.add_row(
            facts.node + (" (simulated)" if facts.simulated else ""),
            facts.hardware,
            _memory(facts),
            _engines(facts),
            _production(facts),
            {True: "yes", False: "no", None: "?"}[facts.engine_port_free],
        )
    return table


def _power(found: Probe) -> Iterator[str]:
    """A line for each set of power meters: what they measure, and on which nodes."""
    nodes: dict[str, list[str]] = {}
    for ready in found.answered.values():
        nodes.setdefault(_meters(ready.facts), []).append(ready.facts.node)
    for meters, names in nodes.items():
        yield f"Power is measured of {meters}: {', '.join(names)}"


def _missing_builds(found: Probe) -> Iterator[str]:
    """A line for each engine build that a node goes without; one that can start none has that as its problem."""
    for ready in found.answered.values():
        builds = ready.facts.builds
        if any(build.problem is None for build in builds):
            yield from (
                f"{ready.facts.node} goes without engine build {build.name}: {build.problem}"
                for build in builds
                if build.problem is not None
            )


def _engines(facts: NodeFacts) -> str:
    """Each engine build with the version that is installed; of the short form's one build the version alone.

    An image may say none without a GPU.
    """
    if len(facts.builds) == 1 and facts.builds[0].name == ONLY:
        return facts.engine_version or "none"
    return ", ".join(f"{build.name} {build.installed or ('none' if build.problem else '?')}" for build in facts.builds)


def _memory(facts: NodeFacts) -> str:
    vram = Counter(f"{gpu.vram_bytes / 2**30:.0f} GiB" for gpu in facts.gpus if gpu.vram_bytes)
    if vram:
        return " + ".join(f"{count} × {size}" for size, count in vram.items())
    return f"{facts.memory_bytes / 2**30:.0f} GiB RAM" if facts.memory_bytes else "?"


def _meters(facts: NodeFacts) -> str:
    """What is measured, and by what."""
    named = {"gpu_boards": "boards", "cpu_and_dram": "CPU + memory", "cpu_package": "CPU", "node": "node"}
    return ", ".join(f"{named[meter.boundary]} ({meter.by})" for meter in facts.power_meters) or "nothing"


def _production(facts: NodeFacts) -> str:
    if facts.production is None:
        return "none"
    state = "serves" if facts.production.running else "is down:"
    return f"{facts.production.manager} {state} {facts.production.model or facts.production.unit or ''}".strip()
