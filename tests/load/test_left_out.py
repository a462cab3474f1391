"""What the first run shows may make the others superfluous."""

from pathlib import Path

from archive_factory import sweep_spec, trial_record
from tokenpeak.load.job import LEFT_OUT, Bar, LoadJob, run_job
from tokenpeak.load.timetable import timetable_server
from tokenpeak.records import Verdict

WORKLOAD = {"kind": "synthetic", "name": "x", "input_tokens": 8, "output_tokens": 10}


def test_bar_is_missed_only_by_a_value_that_counts() -> None:
    """Above or below as the metric has it; an invalid run and an unknown metric say nothing."""
    run = trial_record(sweep_spec({"max_num_seqs": [64]}))[0].runs[0]
    speed, wait = run.summary.output_tok_per_s, run.summary.ttft_s.p95
    assert speed is not None and wait is not None
    invalid = run.model_copy(update={"verdict": Verdict(status="invalid")})
    beyond, within = Bar(metric="output_tok_per_s", worst=2 * speed), Bar(metric="output_tok_per_s", worst=speed / 2)
    slow = Bar(metric="ttft_s_p95", worst=wait / 2, lower_is_better=True)

    assert (speed, None, wait) == (beyond.missed_by(run), within.missed_by(run), slow.missed_by(run))
    assert beyond.missed_by(invalid) is None
    assert Bar(metric="cost_per_1m_output_tok", worst=0.0, lower_is_better=True).missed_by(run) is None


def test_hopeless_config_makes_its_first_run_only(tmp_path: Path) -> None:
    """Beyond the bar the job ends after a first run that was measured well, and says why; else it makes all."""
    runs = [
        {"run_index": index, "workload": WORKLOAD, "level": {"concurrency": concurrency, "requests": 40}}
        for index, concurrency in ((1, 4), (0, 2))
    ]
    made = {}
    with timetable_server(0.01, 0.005) as url:
        for worst in (1e-3, 1e9):
            folder = tmp_path / str(worst)
            job = {"base_url": url, "model": "m", "output_dir": folder, "runs": runs}
            bar = {"metric": "output_tok_per_s", "worst": worst}
            made[worst] = run_job(LoadJob.model_validate({**job, "bar": bar}))
    told = tmp_path / str(1e9) / LEFT_OUT

    assert [1, 0] == [record.run_index for record in made[1e-3]]
    assert not (tmp_path / str(1e-3) / LEFT_OUT).exists()
    if made[1e9][0].verdict.status == "valid":
        assert [1] == [record.run_index for record in made[1e9]]
        assert told.read_text().startswith("1 further run was left out: output_tok_per_s of x at concurrency=4 was ")
    else:
        assert 2 == len(made[1e9]) and not told.exists()
