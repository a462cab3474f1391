"""Run row: what a run's frame says of its load."""

import pytest

from archive_factory import node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.loadgen.workers.pool import from_due
from tokenpeak.spec.workload import ClosedLoad, OpenLoad, Stage, StagedLoad
from tokenpeak.store.rows import run_row

NODE = node_facts("node-1", "NVIDIA L4")


@pytest.mark.parametrize(
    "level",
    [
        ClosedLoad(concurrency=4, requests=8),
        OpenLoad(rate_per_s=2.0, requests=8),
        StagedLoad(stages=(Stage(rate_per_s=1.0, duration_s=5),)),
        StagedLoad(stages=(Stage(concurrency=4, duration_s=5), Stage(concurrency=8, duration_s=5))),
    ],
    ids=["closed", "open", "rates", "concurrencies"],
)
def test_kind_is_what_the_load_client_measured_from(level: ClosedLoad | OpenLoad | StagedLoad) -> None:
    """A load is open where latencies count from when a request was due, staged loads of concurrencies are not."""
    spec = sweep_spec({"max_num_seqs": [8]})
    record, _ = trial_record(spec, node=NODE, planned=plan_of(spec, NODE).feasible[0], replicate=0, number=1)
    run = record.runs[0].model_copy(update={"level": level})
    row = run_row("s", record, run, spec.energy, gpus=1)

    assert ("open" if from_due(level) else "closed") == row["level_kind"]
