"""What the first run shows may make the others superfluous."""

from pathlib import Path

from archive_factory import sweep_spec, trial_record
from tokenpeak.loadgen.job import EarlyStop, LoadJob, read_outcome
from tokenpeak.loadgen.run import run_job
from tokenpeak.loadgen.test_server import local_test_server
from tokenpeak.records import Verdict

WORKLOAD = {"kind": "synthetic", "name": "x", "input_tokens": 8, "output_tokens": 10}


def test_only_a_valid_value_is_beyond_the_threshold() -> None:
    """Above or below as the metric has it; an invalid run and an unknown metric say nothing."""
    run = trial_record(sweep_spec({"max_num_seqs": [64]}))[0].runs[0]
    speed, wait = run.summary.output_tok_per_s, run.summary.ttft_s.p95
    assert speed is not None and wait is not None
    invalid = run.model_copy(update={"verdict": Verdict(status="invalid")})
    beyond = EarlyStop(metric="output_tok_per_s", threshold=2 * speed)
    slow = EarlyStop(metric="ttft_s_p95", threshold=wait / 2, lower_is_better=True)

    assert "below the early-stop threshold" in str(beyond.reason(run, 1))
    assert "above the early-stop threshold" in str(slow.reason(run, 1))
    assert EarlyStop(metric="output_tok_per_s", threshold=speed / 2).reason(run, 1) is None
    assert beyond.reason(invalid, 1) is None
    assert EarlyStop(metric="cost_per_1m_output_tok", threshold=0.0, lower_is_better=True).reason(run, 1) is None


def test_config_that_is_far_behind_makes_its_first_run_only(tmp_path: Path) -> None:
    """Beyond the early-stop threshold the job ends after a valid first run, and says why; else it makes all."""
    runs = [
        {"run_index": index, "workload": WORKLOAD, "level": {"concurrency": concurrency, "requests": 40}}
        for index, concurrency in ((1, 4), (0, 2))
    ]
    made = {}
    with local_test_server(0.01, 0.005) as url:
        for threshold in (1e-3, 1e9):
            folder = tmp_path / str(threshold)
            job = {"base_url": url, "model": "m", "output_dir": folder, "runs": runs}
            early_stop = {"metric": "output_tok_per_s", "threshold": threshold}
            made[threshold] = run_job(LoadJob.model_validate({**job, "early_stop": early_stop}))
    left_out = read_outcome(tmp_path / str(1e9)).left_out

    assert [1, 0] == [record.run_index for record in made[1e-3]]
    assert read_outcome(tmp_path / str(1e-3)).left_out is None
    if made[1e9][0].verdict.status == "valid":
        assert [1] == [record.run_index for record in made[1e9]]
        assert str(left_out).startswith("1 further run was left out: output_tok_per_s of x at concurrency=4 was ")
    else:
        assert 2 == len(made[1e9]) and left_out is None
