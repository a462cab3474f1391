"""`tokenpeak status` and `restore`: how each node stands, and every node given back to production."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from tokenpeak.cli import options
from tokenpeak.errors import ExitStatus, InventoryError, NodeError
from tokenpeak.node.guard import lease
from tokenpeak.node.production.answering import standing
from tokenpeak.node.protocol.answers import StatusAnswer, as_json
from tokenpeak.node.protocol.parts import Production
from tokenpeak.sweep.ansible.result import LOGIN_VARIABLES, Login, logins_of, restored_by
from tokenpeak.sweep.ansible.runner import PlaybookResult, run_playbook
from tokenpeak.sweep.installation import is_another, renewal
from tokenpeak.sweep.inventory.nodes import Inventory, Node, Resolution, hosts_path, nodes_by_name
from tokenpeak.terminal import echo, echo_lines, echo_text

_NOT_INSTALLED = "TokenPeak is not on this node yet; tokenpeak probe puts it there"

_ON_THE_NODE = (
    "As root on a node that this machine does not reach, in its tokenpeak_state_dir:",
    "  python3 -I tokenpeak-node.pyz restore --state .",
    "What lies on a node and how to uninstall it: page 'It is 3 a.m.' of `tokenpeak docs`",
)


def play(
    playbook: str, inventory_name: str, nodes: tuple[str, ...], extravars: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Inventory, PlaybookResult]:
    """Run `playbook` on the nodes of these names, all of the inventory when empty.

    Given names are handed to Ansible as they are, without resolving the inventory first, which takes as long as the
    playbook. They are patterns to Ansible: the playbook ends for each host whose name is not among `tokenpeak_only`.
    Raises InventoryError naming the nearest where the inventory has no such node, NodeError when Ansible could not run.
    """
    path = hosts_path(inventory_name)
    if not nodes:
        inventory = nodes_by_name(inventory_name, Resolution(path))
        return inventory, run_playbook(playbook, inventory, extravars=extravars, logins=lambda: _logins(path, nodes))
    given = Inventory(
        name=inventory_name, hosts_path=path, nodes=tuple(Node(name=name, variables={}) for name in nodes)
    )
    try:
        result = run_playbook(
            playbook,
            given,
            extravars={**extravars, "tokenpeak_only": list(nodes)},
            logins=lambda: _logins(path, nodes),
        )
    except NodeError:
        nodes_by_name(inventory_name, Resolution(path), nodes)
        raise
    if any(node.ok and not node.has_run for node in result.nodes.values()):
        nodes_by_name(inventory_name, Resolution(path), nodes)
    return given, result


def _logins(path: Path, nodes: tuple[str, ...]) -> Mapping[str, Login]:
    """How hosts are logged in to, for the words about one that failed; none where the inventory cannot be read."""
    try:
        return logins_of(Resolution(path, wanted=LOGIN_VARIABLES, nodes=nodes).answer()["variables"])
    except InventoryError:
        return {}


@click.command(short_help="Bring production back on every node; safe at any time.")
@options.inventory("Inventory to give back.")
@options.NODES
@click.option(
    "--accept", is_flag=True, help="Take production as it serves now, though it served another model when recorded."
)
@click.option("--release", is_flag=True, help="Let sweeps have the nodes again that a restore has taken from one.")
def restore(inventory_name: str, nodes: tuple[str, ...], accept: bool, release: bool) -> None:
    """Give the nodes back: engine ended, production as it was recorded, lock broken. Safe at any time.

    A node that a running sweep had is held: no trial begins there until --release.
    """
    extravars = {"tokenpeak_restore": {"accept": accept, "release": release}} if accept or release else {}
    inventory, result = play("restore.yml", inventory_name, nodes, extravars)
    unrestored = 0
    for name, node in result.nodes.items():
        if node.is_not_installed:
            echo(f"{name}: TokenPeak was never put on this node, so there is nothing to give back.")
            continue
        outcome = restored_by(node)
        unrestored += not outcome.restored
        downtime = f" Production was down for {outcome.downtime_s:.1f} s." if outcome.downtime_s else ""
        how = "NOT restored" if outcome.restored is False else standing(outcome.restored)
        message = lease.typed_for(outcome.message, inventory_name)
        echo(f"{name}: {'' if outcome.restored else f'{how}: '}{message}{downtime}")
        if "restore" in node.answers and is_another(node.answers["restore"]):
            echo(f"NOTE {name}: {renewal(inventory, name)}")
    if unrestored:
        sys.exit(ExitStatus.ERROR)


@click.command(short_help="Say what each node serves, who has it, and if it is guarded.")
@options.inventory("Inventory to ask.")
@options.NODES
@options.style("text")
def status(inventory_name: str, nodes: tuple[str, ...], style: str) -> None:
    """Say what each node serves now, which sweep has it, and whether a guard is armed."""
    inventory, result = play("status.yml", inventory_name, nodes)
    answers = {name: node.answer(StatusAnswer) for name, node in result.nodes.items()}
    silent = {
        name: _NOT_INSTALLED if node.is_not_installed else node.unreachable or node.failure or "gave no answer"
        for name, node in result.nodes.items()
        if answers[name] is None
    }
    wrong = {name: list(problems(answer)) for name, answer in answers.items() if answer}
    if style == "json":
        answered = {name: {**as_json(one), "script": one.script} for name, one in answers.items() if one}
        echo_text(json.dumps({"nodes": answered, "silent": silent}, indent=2, default=vars))
    else:
        echo_lines(
            f"{name}: {' '.join(sentences(answer, inventory_name))}" for name, answer in answers.items() if answer
        )
        unwell = [*silent.items(), *((name, " ".join(words)) for name, words in wrong.items() if words)]
        echo_lines(f"PROBLEM {name}: {words}" for name, words in unwell)
        for name, answer in answers.items():
            if answer and is_another(answer):
                echo(f"NOTE {name}: {renewal(inventory, name)}")
        if any(words != _NOT_INSTALLED for _, words in unwell):
            echo(f"Give every node back, which is safe at any time: tokenpeak restore --inventory {inventory_name}")
            echo_lines(_ON_THE_NODE)
        elif any(answer and answer.armed for answer in answers.values()):
            echo(f"Give production back now, ending the trial: tokenpeak restore --inventory {inventory_name}")
    if silent or any(wrong.values()):
        sys.exit(ExitStatus.ERROR)


def sentences(answer: StatusAnswer, inventory_name: str) -> Iterator[str]:
    """How the node stands, for somebody who was just woken up."""
    production = answer.production
    if production is None:
        yield "How production stands is not known."
    elif production.manager == "none":
        yield "No production."
    else:
        name = " ".join(word for word in (production.manager, production.unit) if word)
        yield f"Production ({name}) {_state(production, is_borrowed=bool(answer.armed))}."
    if answer.drained:
        yield f"It is out of its load balancer ({', '.join(answer.drained)}) until production answers."
    holder = answer.holder or "nobody"
    if answer.armed:
        phase = (answer.phase or "unknown").replace("_", " ")
        yield f"Trial {answer.trial_id} of {holder} has the node (now: {phase})."
        lease_s = answer.lease_remaining_s
        if lease_s is None:
            yield "The guard waits for the trial's deadline."
        elif lease_s > 0:
            yield f"The guard gives production back if the controller stays silent for {lease_s:.0f} s more."
        elif production is not None and production.running and production.model:
            yield "The controller is silent and production serves; the trial's record is still there."
        else:
            yield "The controller is silent; the guard is giving production back."
    elif answer.armed is None and answer.unusable:
        yield "Whether a trial has the node is not known."
    elif answer.holder:
        yield f"Between two trials of {holder}."
    else:
        yield "No trial has the node."
    if answer.held_since_unix_s is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(answer.held_since_unix_s))
        release = lease.typed_for(lease.RELEASE, inventory_name)
        yield f"It is held for production since {when}, by a restore: no trial begins there until {release}."


def _state(production: Production, *, is_borrowed: bool) -> str:
    if production.running is None:
        return "is not known to run or not"
    if not production.running:
        return "is stopped" if is_borrowed else "does not run"
    if production.model:
        return f"serves {production.model}"
    return f"runs, and does not answer at {production.url}" if production.url else "runs"


def problems(answer: StatusAnswer) -> Iterator[str]:
    """What somebody should do something about."""
    if answer.problem:
        yield answer.problem
    if answer.unusable and not is_another(answer):
        yield f"Its answer is used only in part: {', '.join(answer.unusable)}."
    if not answer.armed:
        return
    if not answer.guard_alive:
        yield "A trial has the node and no guard watches: tokenpeak restore gives it back."
    last = answer.last_restoration
    if last is not None and last.trial_id == answer.trial_id and not last.restored:
        yield f"{standing(last.restored).capitalize()}: {last.message} The guard keeps trying."
