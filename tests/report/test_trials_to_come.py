"""Trials to come: plan, progress line and live page show one number at every moment of a sweep."""

from datetime import timedelta
from pathlib import Path

import pytest

from archive_factory import PROVENANCE, START, node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.records import Failure, SweepRecord
from tokenpeak.report import open_archive
from tokenpeak.report.trials.search_progress import progress
from tokenpeak.search.remaining import cost_of
from tokenpeak.spec.sweep import SearchSpec
from tokenpeak.store.archive import Archive
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.sweep.trial_queue import TrialQueue

NODE = node_facts("node-1", "NVIDIA L4")
FAILURE = Failure(phase="load", cause="crashed", message="It ended.")


@pytest.mark.integration
@pytest.mark.parametrize(
    "search",
    [
        {"strategy": "grid", "replicates": 2, "anchor_every": 2},
        {"strategy": "grid", "finalists": 2},
        {"strategy": "random", "trials": 5},
        {"strategy": "adaptive", "trials": 4, "finalists": 2},
        {"strategy": "adaptive", "finalists": 0, "time": 300.0},
    ],
)
def test_plan_progress_line_and_live_page_agree(tmp_path: Path, search: dict[str, object]) -> None:
    """The same count before the first trial, after each, and none to come after the last; one trial fails."""
    spec = sweep_spec({"max_num_seqs": [8, 64], "max_num_batched_tokens": [512, 1024, 2048]})
    spec = spec.model_copy(update={"search": SearchSpec.model_validate(search)})
    plan = plan_of(spec, NODE).model_copy(update={"estimated_trial_s": 60.0})
    archive = Archive(tmp_path / "sweep")
    archive.write_sweep(
        SweepRecord(
            sweep_id="sweep",
            name=spec.name,
            inventory="synthetic",
            started_at=START,
            simulated=True,
            spec=spec.model_dump(mode="json"),
            nodes=(NODE,),
            plans=(plan,),
            provenance=PROVENANCE,
        )
    )
    trial_queue = TrialQueue(spec, [plan], [], last_number=0)
    line = ProgressDisplay(terminal=True)
    line.expect(trial_queue.count(), ("node-1",), 1)
    planned = cost_of(spec, plan, [NODE], {}).trials
    shown = [(trial_queue.count().ended, trial_queue.count().total, str(line.table().renderables[0]))]
    live = [progress(open_archive(archive.path))]
    while isinstance(claim := trial_queue.claim(NODE.hardware), tuple):
        proposal, trial_id = claim
        number = int(trial_id[:4])
        record, _ = trial_record(
            spec,
            number=number,
            node=NODE,
            planned=trial_queue.planned(NODE.hardware, proposal.config_id),
            replicate=proposal.replicate,
            started_at=START + timedelta(minutes=2 * number),
            seconds=2,
        )
        changed: dict[str, object] = {"holdout": proposal.holdout}
        if number == 2:
            changed |= {"status": "failed", "failure": FAILURE, "runs": ()}
        record = record.model_copy(update=changed)
        archive.write_trial(record, None, "")
        trial_queue.settle(proposal, record)
        line.trial_ended(record, "", "", trial_queue.count())
        shown.append((trial_queue.count().ended, trial_queue.count().total, str(line.table().renderables[0])))
        live.append(progress(open_archive(archive.path)))

    assert planned == shown[0][1]
    assert [(ended, total) for ended, total, _ in shown] == [(page.done, page.planned) for page in live]
    assert all(standing.startswith(f"{ended} of {total} trials") for ended, total, standing in shown)
    assert live[-1].done == live[-1].planned
