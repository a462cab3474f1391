"""Which trial comes next, for several nodes and after a resume."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from archive_factory import START, make_archive, node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.records import NodeFacts, Plan, TrialRecord
from tokenpeak.search.history import Finished, Proposal, Wait
from tokenpeak.spec.sweep import SearchSpec, SweepSpec
from tokenpeak.sweep.trial_queue import TrialQueue, last_number

NODE = node_facts("node-1", "NVIDIA L4")


def small() -> tuple[SweepSpec, Plan]:
    """Two configs on one kind of hardware, in a grid."""
    spec = sweep_spec({"max_num_seqs": [8, 64]}).model_copy(
        update={"search": SearchSpec(anchor_every=None, finalists=0)}
    )
    return spec, plan_of(spec, NODE)


def made(spec: SweepSpec, plan: Plan, proposal: Proposal, trial_id: str, status: str = "ok") -> TrialRecord:
    """A record of the proposed trial."""
    planned = next(entry for entry in plan.feasible if entry.config.config_id == proposal.config_id)
    record, _ = trial_record(spec, node=NODE, planned=planned, replicate=proposal.replicate, number=int(trial_id[:4]))
    return record.model_copy(update={"trial_id": trial_id, "status": status})


def claimed(trial_queue: TrialQueue) -> tuple[Proposal, str]:
    """The next trial, which there must be."""
    claim = trial_queue.claim(NODE.hardware)
    assert isinstance(claim, tuple)
    return claim


@pytest.mark.parametrize("ended", [0, 2, 4])
def test_resume_begins_with_the_trials_that_every_node_was_making(ended: int) -> None:
    """What three nodes were making when an adaptive sweep was interrupted is what they make first after that."""
    spec = sweep_spec({"max_num_seqs": [16, 32, 64], "max_num_batched_tokens": [512, 2048, 8192]})
    spec = spec.model_copy(update={"search": SearchSpec(strategy="adaptive", anchor_every=None)})
    plan = plan_of(spec, NODE)
    trial_queue = TrialQueue(spec, [plan], [], last_number=0)
    running = [claimed(trial_queue) for _ in range(3)]
    records = []
    for _ in range(ended):
        proposal, trial_id = running.pop(0)
        records.append(made(spec, plan, proposal, trial_id))
        trial_queue.settle(proposal, records[-1])
        running.append(claimed(trial_queue))
    records += [made(spec, plan, proposal, trial_id, "interrupted") for proposal, trial_id in running]
    timed = [
        record.model_copy(update={"started_at": START + timedelta(minutes=index)})
        for index, record in enumerate(records)
    ]
    resumed = TrialQueue(spec, [plan], timed, last_number=len(records))
    again = [claimed(resumed) for _ in range(3)]

    assert {proposal.key for proposal, _ in running} == {proposal.key for proposal, _ in again}
    for proposal, trial_id in again:
        resumed.settle(proposal, made(spec, plan, proposal, trial_id))
    assert claimed(resumed)[0].key not in {proposal.key for proposal, _ in again}


def test_last_trial_of_a_lost_node_is_taken_over() -> None:
    """A worker is to wait for the other node's trial before it stops, and makes it when that came to nothing."""
    spec, plan = small()
    trial_queue = TrialQueue(spec, [plan], [], last_number=0)
    lost, _ = claimed(trial_queue)
    proposal, trial_id = claimed(trial_queue)
    trial_queue.settle(proposal, made(spec, plan, proposal, trial_id))
    seen = trial_queue.changes(NODE.hardware)
    assert isinstance(trial_queue.claim(NODE.hardware), Wait)
    threading.Timer(0.1, trial_queue.abandon, (NODE.hardware, lost)).start()
    trial_queue.wait(NODE.hardware, seen)

    assert lost.config_id == claimed(trial_queue)[0].config_id


def test_numbers_of_unfinished_writes_are_not_given_again(tmp_path: Path) -> None:
    """A trial whose JSON was never written, or is broken, keeps its number."""
    archive = make_archive(tmp_path / "a", axes={"max_num_seqs": [8]}, gpus=("NVIDIA L4",), requests=4)
    (archive.path / "trials" / "0007-deadbeef.requests.parquet").write_bytes(b"")
    (archive.path / "trials" / ".0009-deadbeef.json.part").write_bytes(b"")

    assert 9 == last_number(archive.path)


def test_node_that_waits_for_the_budget_is_woken_when_another_kind_has_left() -> None:
    """Of six trials the small matrix takes two; the other kind makes three, waits, and then makes the fourth."""
    search = SearchSpec(anchor_every=None, finalists=0, baseline=(), trials=6, budget="per_sweep")
    spec = sweep_spec({"max_num_seqs": [8, 64]}).model_copy(update={"search": search})
    small = plan_of(spec, NODE)
    other = node_facts("node-2", "NVIDIA A10")
    large = plan_of(sweep_spec({"max_num_seqs": [*range(8, 16)]}), other)
    trial_queue = TrialQueue(spec, [small, large], [], last_number=0, there=("node-1", "node-2"))

    def make(node: NodeFacts, plan: Plan) -> object:
        claim = trial_queue.claim(node.hardware, node.node)
        if isinstance(claim, tuple):
            planned = next(each for each in plan.feasible if each.config.config_id == claim[0].config_id)
            record, _ = trial_record(spec, node=node, planned=planned, replicate=0, number=int(claim[1][:4]))
            trial_queue.settle(claim[0], record)
        return claim

    first = [make(other, large) for _ in range(4)]
    seen = trial_queue.changes(other.hardware)
    ends = [make(NODE, small) for _ in range(3)]
    trial_queue.leave("node-1")
    last = [make(other, large) for _ in range(2)]

    assert [tuple, tuple, tuple, Wait] == [type(claim) for claim in first]
    assert [tuple, tuple, Finished] == [type(claim) for claim in ends]
    assert trial_queue.changes(other.hardware) > seen
    assert [tuple, Finished] == [type(claim) for claim in last]
    assert trial_queue.is_finished(other.hardware) and trial_queue.is_finished(NODE.hardware)
