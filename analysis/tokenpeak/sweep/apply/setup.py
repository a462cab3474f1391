"""Set-up of applies and rollbacks: rights, what nodes describe, what becomes of each, and one node after the other.

The first node alone, then the rest so many at a time, no more of a group than the inventory allows to be unavailable,
and none more once one was not confirmed.
"""

import getpass
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenpeak import paths
from tokenpeak.errors import InventoryError, NodeError, PlanError
from tokenpeak.node.protocol.answers import DescribeAnswer
from tokenpeak.records import ApplyRecord, Despite
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive, open_archive
from tokenpeak.sweep.ansible.heartbeat_channel import lease_argvs
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.apply.applicable import Applicable, SweepResult, applicable
from tokenpeak.sweep.apply.node_apply import ApplyPlan, ApplySite, answer_of
from tokenpeak.sweep.installation import is_another, master_secret, read_provenance, renewal
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.checks import bake_of
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.limits import GroupLimit
from tokenpeak.sweep.probe import ReadyNode

ROOT = "root"


@dataclass(frozen=True, kw_only=True)
class ApplyRights:
    """The inventory as an apply logs in to it, and what its playbooks are given for that."""

    inventory: Inventory
    extravars: Mapping[str, Any]


def apply_rights(inventory: Inventory, user: str | None) -> ApplyRights:
    """How applies log in: as the inventory's user where it has all rights, else as `user`: root, or a sudoers line's.

    Raises InventoryError where a trial's user would be asked to do it.
    """
    limited = [node for node in inventory.nodes if node.guard_command]
    without = [node.name for node in limited if user != ROOT and not (user and node.apply_command)]
    if without:
        raise InventoryError(
            f"The user of {', '.join(without)} may run trials and not change production (tokenpeak_guard_command). "
            "Apply as root (--user root), or declare tokenpeak_apply_command with a sudoers line of its own and "
            "give that user: page 'Apply the winner' of `tokenpeak docs`."
        )
    if user is None:
        return ApplyRights(inventory=inventory, extravars={})
    nodes = tuple(_as_user(node, user) for node in inventory.nodes)
    commands = {node.guard_command for node in nodes}
    if len(commands) > 1:
        raise InventoryError("Nodes differ in tokenpeak_apply_command: apply to them one after the other, by --node.")
    extravars = {"ansible_user": user, "tokenpeak_guard_command": commands.pop()}
    return ApplyRights(inventory=replace(inventory, nodes=nodes), extravars=extravars)


def _as_user(node: Node, user: str) -> Node:
    """The node as that user logs in, by root's own command or by the one of applies."""
    command = None if user == ROOT else node.apply_command
    return replace(node, variables={**node.variables, "ansible_user": user, "tokenpeak_guard_command": command})


@dataclass(frozen=True, kw_only=True)
class NodeProposal:
    """What an apply would make of one node's production; `problem` says why it cannot."""

    node: str
    ready: ReadyNode
    answer: DescribeAnswer
    found: Applicable | None
    problem: str | None = None


def result_of(archive: Archive) -> SweepResult:
    """What the sweep of an archive left."""
    record = archive.read_sweep()
    spec = parse_spec(record.spec, archive.path / "sweep.json")
    return SweepResult(
        record=record,
        spec=spec,
        trials=tuple(archive.judged_trials()),
        end=archive.read_end(),
        quality=archive.read_quality(),
    )


def descriptions(rights: ApplyRights) -> dict[str, DescribeAnswer | NodeError]:
    """What each node's production is, or why it did not say."""
    done = run_playbook("describe.yml", rights.inventory, extravars=rights.extravars)
    described: dict[str, DescribeAnswer | NodeError] = {}
    for name, result in done.nodes.items():
        try:
            answer = answer_of(result, DescribeAnswer)
        except NodeError as error:
            described[name] = error
            continue
        described[name] = NodeError(renewal(rights.inventory, name)) if is_another(answer) else answer
    return described


def propose(
    result: SweepResult,
    ready: Mapping[str, ReadyNode],
    answers: Mapping[str, DescribeAnswer | NodeError],
    config_name: str | None,
) -> list[NodeProposal]:
    """What would become of each node that was probed."""
    proposals = []
    for name, node in ready.items():
        answer = answers[name]
        if isinstance(answer, NodeError):
            proposals.append(
                NodeProposal(node=name, ready=node, answer=DescribeAnswer(), found=None, problem=str(answer))
            )
            continue
        problem = answer.problem or (f"its answer makes no sense: {answer.unusable}" if answer.unusable else None)
        one: Applicable | None = None
        if problem is None:
            try:
                one = applicable(result, node.facts, answer, config_name)
            except PlanError as error:
                problem = str(error)
        proposals.append(NodeProposal(node=name, ready=node, answer=answer, found=one, problem=problem))
    return proposals


def new_apply_id() -> str:
    """An id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def apply_plan(
    proposal: NodeProposal,
    result: SweepResult,
    rights: ApplyRights,
    despite: Sequence[Despite],
    bake_s: float | None,
) -> ApplyPlan:
    """The apply of a proposal that nothing stands against."""
    found = proposal.found
    assert found is not None, "a proposal with a problem is not carried out"
    needed = tuple(one for one in despite if any(obstacle.despite == one for obstacle in found.obstacles))
    return ApplyPlan(
        apply_id=new_apply_id(),
        sweep_id=result.record.sweep_id,
        node=proposal.node,
        was_sha256=proposal.answer.sha256 or "",
        edit=found.edit,
        config=found.config,
        engine_version=found.engine_version,
        simulated=result.record.simulated,
        despite=needed,
        bake=bake_of(rights.inventory.node(proposal.node), bake_s),
        lease_s=result.spec.deadlines.lease_s,
        production_ready_s=result.spec.deadlines.production_ready_s,
    )


@contextmanager
def apply_site(
    rights: ApplyRights, plans: Sequence[ApplyPlan], interrupt: Interrupt, say: Callable[[str], None]
) -> Iterator[ApplySite]:
    """What the applies of one command share."""
    with tempfile.TemporaryDirectory(prefix="tokenpeak-apply-") as folder:
        host = socket.gethostname()
        secret = master_secret().name.removeprefix("secret-")
        yield ApplySite(
            inventory=rights.inventory,
            folder=Path(folder),
            extravars=rights.extravars,
            interrupt=interrupt,
            say=say,
            provenance=read_provenance(),
            who=f"{getpass.getuser()}@{host}",
            holder=lambda apply_id: f"apply {apply_id} from {host} ({secret})",
            leases=lease_argvs(
                rights.inventory,
                [plan.node for plan in plans],
                rights.extravars,
                cancelled=interrupt.gentle,
            ),
        )


def archive_of_apply(apply_id: str) -> Archive | None:
    """The archive that has the record of this apply; None where none here has it."""
    for path in paths.RESULTS.glob("*/applies/*.json"):
        if path.stem == apply_id:
            return open_archive(path.parents[1])
    return None


def batches(
    plans: Sequence[ApplyPlan],
    serial: int,
    limits: Sequence[GroupLimit] = (),
    down: frozenset[str] = frozenset(),
) -> Iterator[Sequence[ApplyPlan]]:
    """The first alone, then at most `serial` at a time, as many as the groups' limits allow beside the nodes `down`.

    A node that no limit ever allows is in none of them: `forbidden` says so beforehand.
    """
    yield plans[:1]
    left = list(plans[1:])
    while left:
        batch: list[ApplyPlan] = []
        for plan in left:
            away = down | {each.node for each in batch}
            if len(batch) < serial and not forbidden(plan.node, limits, away):
                batch.append(plan)
        if not batch:
            return
        yield batch
        left = [plan for plan in left if plan not in batch]


def forbidden(node: str, limits: Sequence[GroupLimit], down: frozenset[str]) -> list[str]:
    """Why the node may not become unavailable beside the nodes `down`; empty where it may."""
    reasons = (limit.forbidding(down, node) for limit in limits)
    return [reason for reason in reasons if reason is not None]


def apply_serially(
    plans: Sequence[ApplyPlan],
    serial: int,
    apply: Callable[[ApplyPlan], ApplyRecord],
    *,
    limits: Sequence[GroupLimit] = (),
    down: frozenset[str] = frozenset(),
    stop: Callable[[], bool] = lambda: False,
) -> list[ApplyRecord]:
    """The records of those that were begun, first to last."""
    done: list[ApplyRecord] = []
    for batch in batches(plans, serial, limits, down):
        if stop() or not batch:
            break
        with ThreadPoolExecutor(len(batch)) as pool:
            records = list(pool.map(apply, batch))
        done += records
        if any(record.status != "confirmed" for record in records):
            break
    return done
