from pathlib import Path

import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak.cli.predict import explain
from tokenpeak.records import TrialRecord
from tokenpeak.results.prediction_accuracy import hindsight
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """A synthetic sweep with failures, replicates and predictions."""
    path = tmp_path_factory.mktemp("archives") / "a"
    make_archive(path)
    return Archive(path)


def trials_of(archive: Archive) -> list[TrialRecord]:
    return list(archive.trials())


def test_predicts_a_trial_better_from_the_others(archive: Archive) -> None:
    """With each trial left out in turn, the corrected throughput is nearer to what was measured."""
    record = archive.read_sweep()
    spec = parse_spec(record.spec, Path("sweep.json"))
    found = hindsight(spec, record.nodes[0], trials_of(archive), {})
    before = next(error for error in found.errors if error.metric == "output_tok_per_s")
    after = next(error for error in found.corrected_errors if error.metric == "output_tok_per_s")

    assert after.mean_absolute_error <= before.mean_absolute_error


def test_explains_an_archive_in_sentences(archive: Archive) -> None:
    """`tokenpeak explain` prints the error per metric for each kind of hardware, and marks simulated results."""
    result = CliRunner().invoke(explain, [str(archive.path)], catch_exceptions=False)

    assert 0 == result.exit_code
    assert "prediction of output_tok_per_s: measured ÷ predicted" in result.stdout
    assert "(simulated)" in result.stdout


def test_takes_the_fastest_trial_for_the_hardware_s_share(archive: Archive) -> None:
    """The trial with the most output throughput is the one whose share of the limit is shown."""
    record = archive.read_sweep()
    spec = parse_spec(record.spec, Path("sweep.json"))
    trials = [trial for trial in trials_of(archive) if trial.hardware == record.nodes[0].hardware]
    found = hindsight(spec, record.nodes[0], trials, {})
    assert found.best is not None
    speeds = [
        run.summary.output_tok_per_s or 0.0
        for trial in trials
        if trial.status == "ok"
        for run in trial.runs
        if (run.workload.name, run.level_label) == spec.objective_run() and run.verdict.status != "invalid"
    ]

    assert max(speeds) == next(
        run.summary.output_tok_per_s
        for run in found.best.runs
        if (run.workload.name, run.level_label) == spec.objective_run()
    )
