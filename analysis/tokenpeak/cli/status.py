"""`tokenpeak status`: what each node serves now, who has it, and whether its guard is armed."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from tokenpeak.drive.resolution import Resolution, hosts_path
from tokenpeak.terminal import echo

_NOT_INSTALLED = "TokenPeak is not on this node yet; make probe puts it there"


@click.command(short_help="Say what each node serves, who has it, and if it is guarded.")
@click.option("--inventory", "inventory_name", default="sim", show_default=True, help="Inventory to ask.")
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or for machines.",
)
def status(inventory_name: str, nodes: tuple[str, ...], style: str) -> None:
    """Say what each node serves now, which sweep has it, and whether a guard is armed."""
    resolution = Resolution(hosts_path(inventory_name))
    # Half a second of imports, while Ansible reads the inventory.
    from tokenpeak.drive.inventory import nodes_by_name
    from tokenpeak.drive.runner import run_playbook
    from tokenpeak.drive.version import is_another, renewal

    inventory = nodes_by_name(inventory_name, resolution, nodes)
    result = run_playbook("status.yml", inventory)
    answers = {name: dict(node.answers.get("status", {})) for name, node in result.nodes.items()}
    silent = {
        name: _NOT_INSTALLED if node.is_not_installed else node.unreachable or node.failure or "gave no answer"
        for name, node in result.nodes.items()
        if not answers[name]
    }
    wrong = {name: list(problems(answer)) for name, answer in answers.items() if answer}
    if style == "json":
        answered = {name: answer for name, answer in answers.items() if answer}
        echo(json.dumps({"nodes": answered, "silent": silent}, indent=2))
    else:
        for name, answer in answers.items():
            if answer:
                echo(f"{name}: {' '.join(sentences(answer))}")
        for name, words in [*silent.items(), *((name, " ".join(words)) for name, words in wrong.items() if words)]:
            echo(f"PROBLEM {name}: {words}")
        for name, answer in answers.items():
            if answer and is_another(answer):
                echo(f"NOTE {name}: {renewal(inventory, name)}")
        if any(answer.get("armed") for answer in answers.values()):
            echo(f"Give production back now, ending the trial: make restore INVENTORY={inventory_name}")
    if silent or any(wrong.values()):
        sys.exit(1)


def sentences(answer: Mapping[str, Any]) -> Iterator[str]:
    """How the node stands, for somebody who was just woken up."""
    production = answer.get("production")
    if production is None:
        yield "Production cannot be asked."
    elif production.get("manager") == "none":
        yield "No production."
    else:
        name = " ".join(word for word in (production.get("manager"), production.get("unit")) if word)
        yield f"Production ({name}) {_state(production, is_borrowed=bool(answer.get('armed')))}."
    holder = answer.get("holder") or "nobody"
    if answer.get("armed"):
        phase = str(answer.get("phase") or "unknown").replace("_", " ")
        yield f"Trial {answer.get('trial_id')} of {holder} has the node (now: {phase})."
        lease_s = answer.get("lease_remaining_s")
        if lease_s is None:
            yield "The guard waits for the trial's deadline."
        elif lease_s > 0:
            yield f"The guard gives production back if the controller stays silent for {lease_s:.0f} s more."
        else:
            yield "The controller is silent; the guard is giving production back."
    elif answer.get("holder"):
        yield f"Between two trials of {holder}."
    else:
        yield "No trial has the node."


def _state(production: Mapping[str, Any], *, is_borrowed: bool) -> str:
    if not production.get("running"):
        return "is stopped" if is_borrowed else "does not run"
    if production.get("model"):
        return f"serves {production['model']}"
    return f"runs, and does not answer at {production['url']}" if production.get("url") else "runs"


def problems(answer: Mapping[str, Any]) -> Iterator[str]:
    """What somebody should do something about."""
    if answer.get("problem"):
        yield str(answer["problem"])
    if not answer.get("armed"):
        return
    if not answer.get("guard_alive"):
        yield "A trial has the node and no guard watches: make restore gives it back."
    last = answer.get("last_restoration") or {}
    if last.get("trial_id") == answer.get("trial_id") and not last.get("restored"):
        yield f"Production is not back: {last.get('message')} The guard keeps trying."
