"""`tokenpeak apply`: a sweep's recommended config carried into production, one node first; shows the change first."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from tokenpeak import paths
from tokenpeak.cli import options
from tokenpeak.errors import ExitStatus, NodeError
from tokenpeak.node.production.manager import difference
from tokenpeak.node.protocol.answers import AppliedState, DescribeAnswer
from tokenpeak.records import ApplyRecord, Despite
from tokenpeak.spec.sweep import Deadlines, parse_spec
from tokenpeak.store.archive import Archive, archive_below
from tokenpeak.sweep.apply.applicable import remaining
from tokenpeak.sweep.apply.node_apply import ApplyPlan, NodeApply
from tokenpeak.sweep.apply.setup import (
    NodeProposal,
    apply_plan,
    apply_rights,
    apply_serially,
    apply_site,
    archive_of_apply,
    descriptions,
    forbidden,
    new_apply_id,
    propose,
    result_of,
)
from tokenpeak.sweep.interrupt import Interrupt, interrupt_on_signals
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.sweep.limits import group_limits
from tokenpeak.sweep.probe import ReadyNode, not_serving, probe
from tokenpeak.terminal import echo, echo_lines, echo_text

STOP_WORDS = {
    "gentle": "Ending: what is not confirmed is put back. Again: nothing else is waited for.",
    "abrupt": "Aborting: what is not confirmed is still put back. Again: even that is left to the node's guard.",
    "let go": "Left to the guard: the node puts back what was not confirmed when its lease has lapsed.",
}


@click.command(short_help="Carry a sweep's winner into production; shows the change first.")
@click.argument("sweep_id")
@options.NODES
@click.option("--inventory", "inventory_name", help="Inventory of the nodes; the sweep's own when absent.")
@click.option("--config", "config_name", help="Another config of the sweep than the recommended one, by name or id.")
@click.option("--yes", is_flag=True, help="Do it; without, the change is shown and nothing is touched.")
@click.option("--serial", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes at a time, after one.")
@click.option("--bake-s", type=float, help="Seconds to observe production before and after; tokenpeak_bake's or 300.")
@click.option(
    "--despite",
    type=click.Choice(get_args(Despite)),
    multiple=True,
    help="Go on though results are simulated (on simulated nodes), the sweep was interrupted, or the context shrinks.",
)
@click.option("--user", help="Log in as root, or as who has tokenpeak_apply_command, where trials have fewer rights.")
def apply(
    sweep_id: str,
    nodes: tuple[str, ...],
    inventory_name: str | None,
    config_name: str | None,
    *,
    yes: bool,
    serial: int,
    bake_s: float | None,
    despite: tuple[Despite, ...],
    user: str | None,
) -> None:
    """Carry the recommended config of SWEEP_ID into production: drain, stop, change, start, verify, bake, confirm.

    The node puts back exactly what was there unless all of it goes well. `tokenpeak rollback` undoes a confirmed apply.
    """
    archive = archive_below(paths.RESULTS, Path(sweep_id).name)
    result = result_of(archive)
    inventory = read_inventory(inventory_name or result.record.inventory, nodes=nodes)
    rights = apply_rights(inventory, user)
    interrupt = Interrupt()
    with interrupt_on_signals(interrupt, lambda level: echo(STOP_WORDS[level])):
        echo(f"Looking at {', '.join(node.name for node in inventory.nodes)}")
        probed = probe(inventory, cancelled=interrupt.gentle)
        # What keeps a trial off, an engine's port that is taken say, does not keep an apply off.
        silent = {**probed.unreachable, **probed.failed}
        if silent:
            raise NodeError("\n  ".join(["Nothing was changed.", *(f"{name}: {why}" for name, why in silent.items())]))
        proposals = propose(result, probed.answered, descriptions(rights), config_name)
        refused = [line for proposal in proposals for line in _lines(proposal, despite)]
        if refused:
            echo_lines(["Not applied, and nothing was changed:", *(f"  {line}" for line in refused)])
            sys.exit(ExitStatus.INVALID)
        todo = [one for one in proposals if _changes(one)]
        if not todo:
            echo("Production runs this config already.")
            return
        limits, down = group_limits(inventory), not_serving(inventory, probed.answered)
        kept = [f"  {one.node}: {reason}" for one in todo for reason in forbidden(one.node, limits, down)]
        if kept:
            echo_lines(["Not applied, and nothing was changed:", *kept])
            sys.exit(ExitStatus.INVALID)
        if not yes:
            echo("Nothing was changed. Do it with --yes (by make: YES=1).")
            return
        plans = [apply_plan(one, result, rights, despite, bake_s) for one in todo]
        with apply_site(rights, plans, interrupt, echo) as site:

            def carry_out(plan: ApplyPlan) -> ApplyRecord:
                record = NodeApply(plan, site).run()
                archive.write_apply(record)
                return record

            records = apply_serially(plans, serial, carry_out, limits=limits, down=down, stop=interrupt.gentle)
    conclude(records, [plan.node for plan in plans], inventory.name, interrupt)


def _lines(proposal: NodeProposal, despite: Sequence[Despite]) -> list[str]:
    """The change of one node, printed; what stands against it is returned."""
    name, proposed = proposal.node, proposal.found
    if proposed is None:
        return [f"{name}: {proposal.problem}"]
    if proposed.edit is not None:
        before, after = proposed.described.text, proposed.edit.shown(proposed.described)
        echo_lines(["", f"{name}: {proposed.config.name}"])
        echo_text(difference(before, after, f"{name} as it is", f"{name} with {proposed.config.name}") or "  no change")
        for note in proposed.edit.notes:
            echo(f"NOTE {name}: {note}")
    left = remaining(proposed.obstacles, despite)
    for obstacle in proposed.obstacles:
        if obstacle not in left:
            declared = f"(declared by --despite {obstacle.despite})"
            echo(f"WARNING {name}: {obstacle.reason.upper()}, AND IT IS APPLIED ALL THE SAME {declared}")
    return [f"{name}: {obstacle}" for obstacle in left]


def _changes(proposal: NodeProposal) -> bool:
    proposed = proposal.found
    return proposed is not None and proposed.edit is not None and proposed.edit.changes(proposed.described)


def conclude(records: Sequence[ApplyRecord], planned: Sequence[str], inventory_name: str, interrupt: Interrupt) -> None:
    """Say how each node stands, and exit with what that comes to."""
    for record in records:
        down = f" Production was down for {record.downtime_s:.1f} s." if record.downtime_s else ""
        where = f" (in {record.failed_in})" if record.failed_in else ""
        echo(f"{record.node}: {record.status.replace('_', ' ').upper()}{where}. {record.message}{down}")
    if untouched := [name for name in planned if name not in {record.node for record in records}]:
        echo(f"Not begun: {', '.join(untouched)}.")
    if any(record.status == "confirmed" and record.kind == "apply" for record in records):
        echo(f"Undo with: tokenpeak rollback --inventory {inventory_name}")
    if interrupt.gentle():
        sys.exit(ExitStatus.INTERRUPTED)
    if all(record.status == "confirmed" for record in records) and not untouched:
        return
    worse = [record for record in records if record.bake is not None and record.bake.status in ("slower", "failing")]
    sys.exit(ExitStatus.MISSED if worse and all(r.status != "unknown" for r in records) else ExitStatus.ERROR)


@click.command(short_help="Undo the last confirmed apply; shows what drifted first.")
@options.inventory("Inventory of the nodes.")
@options.NODES
@click.option("--yes", is_flag=True, help="Do it; without, the change is shown and nothing is touched.")
@click.option("--serial", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes at a time, after one.")
@click.option("--user", help="Log in as root, or as who has tokenpeak_apply_command, where trials have fewer rights.")
def rollback(inventory_name: str, nodes: tuple[str, ...], *, yes: bool, serial: int, user: str | None) -> None:
    """Give production the definition that it had before its last confirmed apply, verified by real completions."""
    inventory = read_inventory(inventory_name, nodes=nodes)
    rights = apply_rights(inventory, user)
    interrupt = Interrupt()
    with interrupt_on_signals(interrupt, lambda level: echo(STOP_WORDS[level])):
        probed = probe(inventory, cancelled=interrupt.gentle)
        plans: list[ApplyPlan] = []
        archives: dict[str, Archive | None] = {}
        problems = {**probed.unreachable, **probed.failed}
        for name, answer in descriptions(rights).items():
            if name in problems or name not in probed.answered:
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
                plan = _plan(probed.answered[name], answer, archive)
                plans.append(plan)
                archives[plan.apply_id] = archive
        for name, problem in problems.items():
            echo(f"PROBLEM {name}: {problem}")
        if problems:
            sys.exit(ExitStatus.ERROR)
        if not plans:
            return
        if not yes:
            echo("Nothing was changed. Do it with --yes (by make: YES=1).")
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
