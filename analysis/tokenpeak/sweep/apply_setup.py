"""Set-up of applies and rollbacks: what nodes describe, what is to become of each, and who keeps the record."""

import getpass
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import NodeError, PlanError
from tokenpeak.node.protocol.apply_answers import DescribeAnswer
from tokenpeak.records import Despite
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive, archive_below, open_archive
from tokenpeak.sweep.applicable import Applicable, SweepResult, applicable
from tokenpeak.sweep.apply import ApplyPlan, ApplySite, answer_of
from tokenpeak.sweep.apply_rights import ApplyRights
from tokenpeak.sweep.bake_settings import bake_settings
from tokenpeak.sweep.channels import lease_argvs
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory import Inventory
from tokenpeak.sweep.probe import ReadyNode
from tokenpeak.sweep.provenance import read_provenance
from tokenpeak.sweep.runner import run_playbook
from tokenpeak.sweep.secret import master_secret
from tokenpeak.sweep.version import is_another, renewal


@dataclass(frozen=True, kw_only=True)
class NodeProposal:
    """What an apply would make of one node's production; `problem` says why it cannot."""

    node: str
    ready: ReadyNode
    answer: DescribeAnswer
    found: Applicable | None
    problem: str | None = None


def open_result(sweep_id: str, inventory: Inventory, results: Path | None = None) -> tuple[Archive, SweepResult]:
    """The archive of a sweep, and what it left."""
    archive = archive_of(sweep_id, results)
    record = archive.read_sweep()
    spec = parse_spec(record.spec, archive.path / "sweep.json")
    return archive, SweepResult(
        record=record,
        spec=spec,
        trials=tuple(archive.judged_trials()),
        end=archive.read_end(),
        quality=archive.read_quality(),
    )


def archive_of(sweep_id: str, results: Path | None = None) -> Archive:
    """The archive of that sweep below `results`; raises InputError naming the nearest."""
    return archive_below(results or paths.RESULTS, Path(sweep_id).name)


def descriptions(rights: ApplyRights) -> dict[str, DescribeAnswer | NodeError]:
    """What each node's production is, or why it did not say."""
    done = run_playbook("describe.yml", rights.inventory, extravars=rights.extravars)
    found: dict[str, DescribeAnswer | NodeError] = {}
    for name, result in done.nodes.items():
        try:
            answer = answer_of(result, DescribeAnswer)
        except NodeError as error:
            found[name] = error
            continue
        found[name] = NodeError(renewal(rights.inventory, name)) if is_another(answer) else answer
    return found


def propose(
    result: SweepResult,
    ready: Mapping[str, ReadyNode],
    answers: Mapping[str, DescribeAnswer | NodeError],
    config_name: str | None,
) -> list[NodeProposal]:
    """What would become of each node that was probed."""
    found = []
    for name, node in ready.items():
        answer = answers[name]
        if isinstance(answer, NodeError):
            found.append(NodeProposal(node=name, ready=node, answer=DescribeAnswer(), found=None, problem=str(answer)))
            continue
        problem = answer.problem or (f"its answer makes no sense: {answer.unusable}" if answer.unusable else None)
        one: Applicable | None = None
        if problem is None:
            try:
                one = applicable(result, node.facts, answer, config_name)
            except PlanError as error:
                problem = str(error)
        found.append(NodeProposal(node=name, ready=node, answer=answer, found=one, problem=problem))
    return found


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
        bake=bake_settings(rights.inventory.node(proposal.node), bake_s),
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


def archive_of_apply(apply_id: str, results: Path | None = None) -> Archive | None:
    """The archive that has the record of this apply; None where none here has it."""
    for path in (results or paths.RESULTS).glob("*/applies/*.json"):
        if path.stem == apply_id:
            return open_archive(path.parents[1])
    return None
