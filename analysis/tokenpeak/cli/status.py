"""`tokenpeak status`: what each node serves now, who has it, and whether its guard is armed."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tokenpeak.drive.inventory import read_inventory
from tokenpeak.drive.runner import run_playbook

_NOT_INSTALLED = "TokenPeak is not on this node yet; make probe puts it there"


@click.command()
@click.option("--inventory", "inventory_name", default="sim", show_default=True, help="Inventory to ask.")
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people or for machines.",
)
def status(inventory_name: str, nodes: tuple[str, ...], style: str) -> None:
    """Say what each node serves now, which sweep has it, and whether a guard is armed."""
    inventory = read_inventory(inventory_name).limited_to(nodes)
    result = run_playbook("status.yml", inventory)
    answers = {name: dict(node.answers.get("status", {})) for name, node in result.nodes.items()}
    silent = {
        name: _NOT_INSTALLED if node.is_not_installed else node.unreachable or node.failure or "gave no answer"
        for name, node in result.nodes.items()
        if not answers[name]
    }
    if style == "json":
        told = {name: answer for name, answer in answers.items() if answer}
        click.echo(json.dumps({"nodes": told, "silent": silent}, indent=2))
    else:
        table = Table(box=None, pad_edge=False)
        for title in ("node", "production", "engine", "held by", "guard", "lease left"):
            table.add_column(title)
        for name, answer in answers.items():
            if answer:
                table.add_row(name, *_cells(answer))
        Console().print(table)
        for name, reason in silent.items():
            click.echo(f"PROBLEM {name}: {reason}")
    if silent:
        sys.exit(1)


def _cells(answer: Mapping[str, Any]) -> tuple[str, ...]:
    production = answer.get("production") or {}
    serves = "serves" if production.get("running") else "down"
    lease_s = answer.get("lease_remaining_s")
    guard = "armed" if answer.get("armed") else "not armed"
    if answer.get("armed") and not answer.get("guard_alive"):
        guard = "armed, but nobody watches"
    return (
        f"{production.get('manager', '?')} {serves} {production.get('model') or ''}".strip(),
        f"trial {answer['trial_id']}" if answer.get("engine") and answer.get("trial_id") else "",
        answer.get("holder") or "",
        guard,
        "" if lease_s is None else f"{lease_s:.0f} s",
    )
