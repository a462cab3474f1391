"""`tokenpeak rollback`: the last confirmed apply undone, after showing what has changed since."""

import sys
from pathlib import Path

import click

from tokenpeak.cli.apply import STOP_WORDS, conclude
from tokenpeak.errors import NodeError
from tokenpeak.exit_status import ExitStatus
from tokenpeak.node.engine.command import difference
from tokenpeak.node.protocol.apply import AppliedState, DescribeAnswer
from tokenpeak.records import ApplyRecord
from tokenpeak.spec.sweep import Deadlines, parse_spec
from tokenpeak.store.archive import Archive
from tokenpeak.sweep.apply.node_apply import ApplyPlan, NodeApply
from tokenpeak.sweep.apply.setup import (
    apply_rights,
    apply_serially,
    apply_site,
    archive_of_apply,
    descriptions,
    new_apply_id,
)
from tokenpeak.sweep.interrupt import Interrupt, interrupt_on_signals
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.sweep.probe import ReadyNode, probe
from tokenpeak.terminal import echo, echo_lines, echo_text


@click.command(short_help="Undo the last confirmed apply; shows what drifted first.")
@click.option("--inventory", "inventory_name", default="sim", show_default=True, help="Inventory of the nodes.")
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given more than once.")
@click.option("--yes", is_flag=True, help="Do it; without, the change is shown and nothing is touched.")
@click.option("--serial", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes at a time, after one.")
@click.option("--user", help="Log in as root, or as who has tokenpeak_apply_command, where trials have fewer rights.")
def rollback(inventory_name: str, nodes: tuple[str, ...], *, yes: bool, serial: int, user: str | None) -> None:
    """Give production the definition that it had before its last confirmed apply, verified by real completions."""
    inventory = read_inventory(inventory_name, nodes=nodes)
    rights = apply_rights(inventory, user)
    interrupt = Interrupt()
    with interrupt_on_signals(interrupt, lambda level: echo(STOP_WORDS[level])):
        found = probe(inventory, cancelled=interrupt.gentle)
        plans: list[ApplyPlan] = []
        archives: dict[str, Archive | None] = {}
        problems = {**found.unreachable, **found.failed}
        for name, answer in descriptions(rights).items():
            if name in problems or name not in found.answered:
                continue
            if isinstance(answer, NodeError) or answer.problem is not None:
                problems[name] = answer.problem or "" if isinstance(answer, DescribeAnswer) else str(answer)
            elif answer.applied is None:
                echo(f"{name}: no apply was confirmed here.")
            else:
                _show(name, answer, answer.applied)
                archive = archive_of_apply(answer.applied.apply_id)
                if archive is None:
                    echo(f"NOTE {name}: no archive here has apply {answer.applied.apply_id}: this is recorded nowhere.")
                plan = _plan(found.answered[name], answer, archive)
                plans.append(plan)
                archives[plan.apply_id] = archive
        for name, problem in problems.items():
            echo(f"PROBLEM {name}: {problem}")
        if problems:
            sys.exit(ExitStatus.ERROR)
        if not plans:
            return
        if not yes:
            echo("Nothing was changed. Do it with YES=1 (tokenpeak rollback … --yes).")
            return
        with apply_site(rights, plans, interrupt, echo) as site:

            def carry_out(plan: ApplyPlan) -> ApplyRecord:
                record = NodeApply(plan, site).run()
                archive = archives[plan.apply_id]
                if archive is not None:
                    archive.write_apply(record)
                return record

            records = apply_serially(plans, serial, carry_out, stop=interrupt.gentle)
    conclude(records, [plan.node for plan in plans], inventory.name, interrupt)


def _show(name: str, answer: DescribeAnswer, applied: AppliedState) -> None:
    """What has changed since the apply, and what the rollback changes."""
    now = answer.text or ""
    if answer.sha256 != applied.new_sha256:
        drifted = difference(applied.new_text, now, f"{name} as apply {applied.apply_id} left it", f"{name} as it is")
        echo_lines(["", f"{name}: its definition has drifted since apply {applied.apply_id}:"])
        echo_text(drifted or "  not in its command: in another file of its manager's")
    echo_lines(["", f"{name}: rollback of apply {applied.apply_id}"])
    echo_text(difference(now, applied.was_text, f"{name} as it is", f"{name} as it was before") or "  no change")


def _plan(ready: ReadyNode, answer: DescribeAnswer, archive: Archive | None) -> ApplyPlan:
    record = archive.read_sweep() if archive is not None else None
    deadlines = parse_spec(record.spec, Path("sweep.json")).deadlines if record is not None else Deadlines()
    return ApplyPlan(
        apply_id=new_apply_id(),
        sweep_id=record.sweep_id if record is not None else "unknown",
        node=ready.facts.node,
        was_sha256=answer.sha256 or "",
        edit=None,
        config=None,
        engine_version=None,
        simulated=ready.facts.simulated,
        despite=(),
        bake=None,
        lease_s=deadlines.lease_s,
        production_ready_s=deadlines.production_ready_s,
    )
