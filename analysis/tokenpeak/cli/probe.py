"""`tokenpeak probe`, `install`, `uninstall` and `notify`: what nodes are, what is put on them, who hears of trouble."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import click

from tokenpeak.cli import options
from tokenpeak.console import SafeConsole, SafeTable
from tokenpeak.errors import ExitStatus, NodeError
from tokenpeak.node.engine.builds import ONLY, is_vllm
from tokenpeak.node.guard import notify as sending
from tokenpeak.node.protocol.answers import UninstallAnswer
from tokenpeak.records import EngineBuild, NodeFacts
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.installation import install as put
from tokenpeak.sweep.installation import rotate as replace_secret
from tokenpeak.sweep.interrupt import Interrupt, interrupt_on_signals
from tokenpeak.sweep.inventory.nodes import Inventory, read_inventory
from tokenpeak.sweep.probe import Probe
from tokenpeak.sweep.probe import probe as probe_nodes
from tokenpeak.sweep.progress import SIDE, receivers_of
from tokenpeak.sweep.trial.load_hosts import prepare_load_hosts
from tokenpeak.terminal import echo, echo_lines, echo_text


@click.command(short_help="Put the node script on the nodes and look; stops nothing.")
@options.inventory("Inventory to probe.")
@options.NODES
@options.style()
def probe(inventory_name: str, nodes: tuple[str, ...], style: str) -> None:
    """Put TokenPeak's command on each node and look: hardware, production, engine, free port. Stops nothing."""
    inventory = read_inventory(inventory_name, nodes=nodes)
    interrupt = Interrupt()
    with interrupt_on_signals(interrupt, lambda _: None):
        probed = probe_nodes(inventory, cancelled=interrupt.gentle)
        load = _load_hosts(inventory, interrupt)
    if style == "json":
        echo_text(json.dumps({**_as_json(probed), "load_hosts": load}, indent=2))
    else:
        SafeConsole().print(_table(probed))
        echo_lines((*_power(probed), *_missing_builds(probed)))
        echo_lines(f"PROBLEM {complaint}" for complaint in probed.complaints())
        echo_lines(f"PROBLEM {problem}" if problem else f"{name} offers load" for name, problem in load.items())
    if probed.complaints() or any(load.values()):
        sys.exit(ExitStatus.ERROR)


def _load_hosts(inventory: Inventory, interrupt: Interrupt) -> dict[str, str | None]:
    """Each load host, and what is wrong with it or None."""
    problems: dict[str, str | None] = {}
    for host in inventory.load_hosts:
        try:
            prepare_load_hosts(replace(inventory, load_hosts=(host,)), say=lambda _: None, cancelled=interrupt.gentle)
            problems[host.name] = None
        except NodeError as error:
            problems[host.name] = str(error)
    return problems


def _as_json(probed: Probe) -> dict[str, object]:
    return {
        "nodes": [ready.facts.model_dump(mode="json") for ready in probed.answered.values()],
        "unreachable": dict(probed.unreachable),
        "failed": dict(probed.failed),
    }


def _table(probed: Probe) -> SafeTable:
    table = SafeTable(box=None, pad_edge=False)
    for title in ("node", "hardware", "memory", "engine", "production", "port free"):
        table.add_column(title, overflow="fold")
    for ready in probed.answered.values():
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


def _power(probed: Probe) -> Iterator[str]:
    """A line for each set of power meters: what they measure, and on which nodes."""
    nodes: dict[str, list[str]] = {}
    for ready in probed.answered.values():
        nodes.setdefault(_meters(ready.facts), []).append(ready.facts.node)
    for meters, names in nodes.items():
        where = ", ".join(names)
        yield f"Power is measured of {meters}: {where}" if meters else f"No power reading on {where}: no energy figures"


def _missing_builds(probed: Probe) -> Iterator[str]:
    """A line for each engine build that a node goes without; one that can start none has that as its problem."""
    for ready in probed.answered.values():
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
    return ", ".join(f"{build.name} {_version(build)}" for build in facts.builds)


def _version(build: EngineBuild) -> str:
    """What is there of a build; of another server than vLLM its name."""
    if build.installed or build.problem:
        return build.installed or "none"
    return "?" if is_vllm(build.version) else str(build.version)


def _memory(facts: NodeFacts) -> str:
    vram = Counter(f"{gpu.vram_bytes / 2**30:.0f} GiB" for gpu in facts.gpus if gpu.vram_bytes)
    if vram:
        return " + ".join(f"{count} × {size}" for size, count in vram.items())
    return f"{facts.memory_bytes / 2**30:.0f} GiB RAM" if facts.memory_bytes else "?"


def _meters(facts: NodeFacts) -> str:
    """What is measured, and by what; empty where nothing is."""
    named = {"gpu_boards": "GPUs", "cpu_and_dram": "CPU + memory", "cpu_package": "CPU", "node": "node"}
    return ", ".join(f"{named[meter.boundary]} ({meter.by})" for meter in facts.power_meters)


def _production(facts: NodeFacts) -> str:
    if facts.production is None:
        return "none"
    if facts.production.manager == "none":
        return "none (declared)"
    state = "serves" if facts.production.running else "is down:"
    return f"{facts.production.manager} {state} {facts.production.model or facts.production.unit or ''}".strip()


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

    End a running sweep first. Production is not touched, except a demonstration's that TokenPeak itself started
    (`tokenpeak_produce: true`), which ends. What stays on a node is said, with the reason.
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
        page = "page 'Set up alerts' of `tokenpeak docs`"
        echo(f"Inventory {inventory.name} names nobody: give tokenpeak_notify ({page}).")
        return
    sent = sending.event("test", "A test of tokenpeak notify: nothing happened.", source=SIDE, inventory=inventory.name)
    ended = sending.send(receivers, sent, waits_s=(0.0,))
    for receiver, problem in zip(receivers, ended, strict=True):
        echo(f"{sending.name_of(receiver)}: {problem or 'got it'}")
    if any(ended):
        sys.exit(ExitStatus.ERROR)
