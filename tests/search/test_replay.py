"""Recorded trials and replay: archives and CSV files as landscapes, and what searches find on them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from landscape_factory import landscape

from archive_factory import AXES, GPUS, OUTPUT_TOKENS, make_archive, sweep_spec, trial_record
from tokenpeak.cli.replay import replay as command
from tokenpeak.errors import ArchiveError
from tokenpeak.records import ModelName, Reason, Verdict
from tokenpeak.search.history import BADLY_MEASURED, outcome_of
from tokenpeak.search.replay import landscapes_of, replay, summarize
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.pack import pack


def test_replays_do_not_depend_on_processes() -> None:
    """The same seeds give the same searches, on one process or two."""
    truth = landscape("V100", 1)

    assert replay(truth, "random", trials=5, seeds=6) == replay(truth, "random", trials=5, seeds=6, jobs=2)


def test_trying_everything_always_hits() -> None:
    """A grid over all configs of a quiet landscape takes the best; its first hit is within its trials.

    Each config of this landscape has an effect of its own, and so a class.
    """
    truth = landscape("V100", 1, noise=1e-6)
    own = [each.model_copy(update={"config_class": each.config.config_id}) for each in truth.plan.feasible]
    truth = replace(truth, plan=truth.plan.model_copy(update={"feasible": tuple(own)}))
    searches = replay(truth, "grid", trials=36, seeds=3)

    assert all(one.hit and one.regret < 1e-4 for one in searches)
    assert all(one.first_hit is not None and one.first_hit <= 36 for one in searches)


def test_command_reads_packed_archives(tmp_path: Path) -> None:
    """JSON holds the strategy's figures on top, random's beside, and each landscape's noise and margin."""
    make_archive(tmp_path / "a", axes=AXES, replicates=3, gpus=GPUS[:1], seconds=2)
    packed = pack(tmp_path / "a", tmp_path / "elsewhere" / "a.tar.zst")
    arguments = [str(packed), "--trials", "4", "--seeds", "5", "--jobs", "1", "--format", "json"]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    report = json.loads(result.output)

    assert {"hit_rate", "median_regret", "median_trials_to_hit", "random", "grid", "landscapes"} <= report.keys()
    assert {"hit_rate", "median_regret", "median_trials_to_hit"} <= report["random"].keys()
    assert report["landscapes"][0]["configs"] == 8
    assert report["landscapes"][0]["margin"] >= 0.0099


def test_sweeps_without_a_result_are_skipped(tmp_path: Path) -> None:
    """Of a folder's sweeps those are searched that have a result; a choice as good as the best falls nothing short."""
    make_archive(tmp_path / "good", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], seconds=2)
    failed = make_archive(tmp_path / "failed", axes={"max_num_seqs": [8]}, gpus=GPUS[:1], seconds=2)
    for path in failed.path.glob("trials/*.json"):
        path.unlink()
    result = CliRunner().invoke(command, [str(tmp_path), "--seeds", "2", "--jobs", "1"], catch_exceptions=False)

    assert 0 == result.exit_code
    assert "has no trial whose output_tok_per_s may be ranked" in result.stderr
    assert " 0.00%" in result.stdout
    assert "-0.00%" not in result.stdout
    with pytest.raises(ArchiveError, match="nothing to replay"):
        CliRunner().invoke(command, [str(tmp_path / "failed")], catch_exceptions=False)


def test_another_run_is_searched_by_its_own_predictions(tmp_path: Path) -> None:
    """Predictions of the archive's objective run say nothing of another; a model that is unknown here has none."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2)
    sweep = archive.read_sweep()
    own = SweepSpec.model_validate(sweep.spec)
    other = own.model_copy(update={"objective": own.objective.model_copy(update={"level": "rate=4/s"})})
    (same,) = landscapes_of("a", sweep, archive.trials(), own)
    (predicted_anew,) = landscapes_of("a", sweep, archive.trials(), other)
    unknown = [
        planned.model_copy(
            update={"config": planned.config.model_copy(update={"model": ModelName(name="mine", served_name="mine")})}
        )
        for planned in sweep.plans[0].feasible
    ]
    (alone,) = landscapes_of(
        "a",
        sweep.model_copy(update={"plans": (sweep.plans[0].model_copy(update={"feasible": tuple(unknown)}),)}),
        archive.trials(),
        other,
    )

    assert [each.prediction for each in sweep.plans[0].feasible] == [each.prediction for each in same.plan.feasible]
    assert all(
        each.prediction is not None and pytest.approx(4 * OUTPUT_TOKENS, rel=0.05) == each.prediction.output_tok_per_s
        for each in predicted_anew.plan.feasible
    ), "no engine gives more than is asked"
    assert {None} == {each.prediction for each in alone.plan.feasible}


@pytest.mark.integration
def test_rounds_on_several_nodes_hit_as_one_node_does() -> None:
    """Ten trials in two rounds of five find what ten in a row find: pending trials count."""
    truth = landscape("V100", 1)
    alone, together = (replay(truth, "adaptive", trials=10, seeds=6, nodes=nodes) for nodes in (1, 5))

    assert [10] * 6 == [one.trials for one in together]
    assert sum(one.hit for one in together) >= sum(one.hit for one in alone) - 1


@pytest.mark.parametrize(("nodes", "wall_s"), [(1, 600.0), (5, 120.0), (4, 180.0)])
def test_rounds_take_as_long_as_their_longest_trial(nodes: int, wall_s: float) -> None:
    """Ten trials of a minute: ten minutes on one node, two on five, three on four."""
    truth = landscape("A100", 1)
    timed = replace(truth, durations_s={key: (60.0,) * len(each) for key, each in truth.launches.items()})
    summary = summarize(replay(timed, "random", trials=10, seeds=3, nodes=nodes))
    untimed = summarize(replay(truth, "random", trials=10, seeds=1, nodes=nodes))

    assert (wall_s, 600.0) == (summary.mean_wall_s, summary.mean_alone_s)
    assert (None, None) == (untimed.mean_wall_s, untimed.mean_alone_s)


@pytest.mark.parametrize(
    ("code", "cause"),
    [("late_dispatch", BADLY_MEASURED), ("segments_lost", BADLY_MEASURED), ("overloaded", None), ("preemptions", None)],
)
def test_an_invalid_run_is_no_failed_config(code: str, cause: str | None) -> None:
    """A run that the client or the network spoilt says nothing about its config; the engine's own limits do."""
    trial, _ = trial_record(sweep_spec())
    verdict = Verdict(status="invalid", reasons=(Reason(code=code, text="…"),))
    spoilt = trial.model_copy(
        update={"runs": tuple(run.model_copy(update={"verdict": verdict}) for run in trial.runs), "failure": None}
    )
    outcome = outcome_of(spoilt.model_copy(update={"status": "ok"}), sweep_spec())

    assert (None, cause) == (outcome.value, outcome.failure_cause)
    assert outcome.about_the_config == (cause is None)
    assert not outcome.feasible
