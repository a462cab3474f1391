"""Replay: archives and CSV files as landscapes, and what searches find on them."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from landscape_factory import landscape

from archive_factory import AXES, GPUS, OUTPUT_TOKENS, make_archive
from tokenpeak.cli.replay import replay as command
from tokenpeak.errors import ArchiveError
from tokenpeak.records import ModelName
from tokenpeak.search.adaptive import Greedy
from tokenpeak.search.history import Outcome, Proposal
from tokenpeak.search.landscape import landscape_of_rows, landscapes_of
from tokenpeak.search.replay import replay, summarize
from tokenpeak.search.searches import make_strategy
from tokenpeak.search.space import space_of
from tokenpeak.spec.search import SearchSpec
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.pack import pack


def test_replays_do_not_depend_on_processes() -> None:
    """The same seeds give the same searches, on one process or two."""
    known = landscape("V100", 1)

    assert replay(known, "random", trials=5, seeds=6) == replay(known, "random", trials=5, seeds=6, jobs=2)


def test_trying_everything_always_hits() -> None:
    """A grid over all configs of a quiet landscape takes the best; its first hit is within its trials."""
    known = landscape("V100", 1, noise=1e-6)
    found = replay(known, "grid", trials=36, seeds=3)

    assert all(one.hit and one.regret < 1e-4 for one in found)
    assert all(one.first_hit is not None and one.first_hit <= 36 for one in found)


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


def test_command_reads_csv(tmp_path: Path) -> None:
    """A CSV of axes and a measured value, with repeated rows and failures, is a landscape too."""
    path = tmp_path / "measured.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seqs", "eager", "replicate", "tok_per_s"])
        for seqs in (8, 16, 32):
            for eager in ("true", "false"):
                for replicate in range(2):
                    failed = seqs == 32 and eager == "true"
                    writer.writerow([seqs, eager, replicate, "" if failed else seqs + replicate])
    arguments = [str(path), "--trials", "5", "--seeds", "4", "--jobs", "1", "--format", "json"]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    found = json.loads(result.output)["landscapes"][0]

    assert 6 == found["configs"]
    assert 12 == found["launches"]
    assert 2 == found["failed_launches"]


def test_unknown_columns_are_named() -> None:
    """A column that is not there is an error that names the nearest."""
    with pytest.raises(ArchiveError, match=r"no column 'tok'.*tok_per_s"):
        landscape_of_rows("x", [{"a": "1", "tok_per_s": "2"}], value="tok")
    with pytest.raises(ArchiveError, match="no number"):
        landscape_of_rows("x", [{"a": "1", "tok_per_s": "fast"}])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("seqs,tok_per_s\n8,1,2\n", "row 1 has not as many cells"),
        ("seqs,tok_per_s\n8\n", "row 1 has not as many cells"),
        ("tok_per_s\n8\n", "no column that could be an axis"),
        ("", "no rows"),
        ("seqs,tok_per_s\n\ud8008,1\n", "cannot be read as CSV"),
    ],
)
def test_broken_csv_is_an_error(text: str, why: str, tmp_path: Path) -> None:
    """What is no table of launches is refused with where and why."""
    path = tmp_path / "measured.csv"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    with pytest.raises(ArchiveError, match=why):
        CliRunner().invoke(command, [str(path)], catch_exceptions=False)


def test_a_table_of_latencies_is_searched_for_the_least() -> None:
    """The value's column says which way is better, and a prediction in its unit ranks configs the same way."""
    rows = [{"seqs": seqs, "predicted": str(0.11 * int(seqs)), "ttft_s_p95": str(0.1 * int(seqs))} for seqs in "124"]
    found = landscape_of_rows("x", rows, axes=["seqs"], predicted="predicted")
    expected = space_of(found.plan, metric=found.metric).expected

    assert "ttft_s_p95" == found.metric
    assert ["1", "2", "4"] == [found.plan.feasible[point].config.choices["seqs"] for point in np.argsort(-expected)]
    assert max(found.truth(), key=found.truth().__getitem__) == found.plan.feasible[0].config.config_id


def test_a_metric_that_there_is_not_is_named() -> None:
    """A misspelt metric is refused with the nearest, instead of taken for one that is to be high."""
    with pytest.raises(ArchiveError, match=r"'ttft'.*ttft_s"):
        landscape_of_rows("x", [{"a": "1", "ttft": "2"}], metric="ttft")


def test_a_second_objective_can_be_replayed(tmp_path: Path) -> None:
    """An archive is searched again for what it named besides its objective."""
    archive = make_archive(tmp_path / "a", replicates=2, gpus=GPUS[:1], seconds=2)
    sweep = json.loads((archive.path / "sweep.json").read_text())
    sweep["spec"]["objective"]["also"] = ["ttft_s_p95"]
    (archive.path / "sweep.json").write_text(json.dumps(sweep))
    arguments = [str(archive.path), "--metric", "ttft_s_p95", "--trials", "2", "--seeds", "2", "--jobs", "1"]

    assert 0 == CliRunner().invoke(command, arguments, catch_exceptions=False).exit_code


def test_another_run_is_searched_by_its_own_predictions(tmp_path: Path) -> None:
    """Predictions of the archive's objective run say nothing of another; a model that is unknown here has none."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2)
    sweep = archive.read_sweep()
    own = SweepSpec.model_validate(sweep.spec)
    other = own.model_copy(update={"objective": own.objective.model_copy(update={"level": "rate=4/s"})})
    (same,) = landscapes_of("a", sweep, archive.trials(), own)
    (found,) = landscapes_of("a", sweep, archive.trials(), other)
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
        for each in found.plan.feasible
    ), "no engine gives more than is asked"
    assert {None} == {each.prediction for each in alone.plan.feasible}


def test_other_measurements_are_no_axes() -> None:
    """Columns of other metrics beside the value do not make configs of their own."""
    rows = [{"seqs": "8", "ttft_s_p95": str(0.1 * number), "tok_per_s": "5"} for number in (1, 2, 3)]

    assert [(5.0, 5.0, 5.0)] == list(landscape_of_rows("x", rows).launches.values())


@pytest.mark.integration
def test_rounds_on_several_nodes_hit_as_one_node_does() -> None:
    """Ten trials in two rounds of five find what ten in a row find: pending trials count."""
    known = landscape("V100", 1)
    alone, together = (replay(known, "adaptive", trials=10, seeds=6, nodes=nodes) for nodes in (1, 5))

    assert [10] * 6 == [one.trials for one in together]
    assert sum(one.hit for one in together) >= sum(one.hit for one in alone) - 1


def test_command_knows_how_many_nodes_there_are(tmp_path: Path) -> None:
    """More slow nodes than nodes are refused; a search with as many is replayed."""
    make_archive(tmp_path / "a", axes=AXES, replicates=2, gpus=GPUS[:1], seconds=2)
    command_line = [str(tmp_path / "a"), "--trials", "4", "--seeds", "2", "--jobs", "1", "--slow-nodes", "2"]
    refused = CliRunner().invoke(command, command_line)
    made = CliRunner().invoke(command, [*command_line, "--nodes", "3"], catch_exceptions=False)

    assert "--slow-nodes is 2, of 1 nodes" in refused.output
    assert 0 == made.exit_code


def test_a_first_round_is_spread_over_what_may_be_best() -> None:
    """Five launches without a result before them are no copies of one guess: two rounds hit without predictions."""
    found = replay(landscape("A100", 2), "adaptive", trials=10, seeds=6, nodes=5, prior="none")

    assert sum(one.hit for one in found) >= 5


def test_greedy_rounds_are_copies_of_one_step_and_repeat_no_config() -> None:
    """Each greedy node takes what a single node would if the configs that others launch did not exist."""
    known = landscape("V100", 1)
    search = SearchSpec(strategy="adaptive", trials=10, finalists=0, anchor_every=None)
    greedy = Greedy(search, known.plan, metric=known.metric, direction="higher")
    blind = make_strategy(search, known.plan, metric=known.metric)
    history: list[Outcome] = []
    for _ in range(4):
        step = blind.propose(history, [])
        assert isinstance(step, Proposal)
        value = known.launches[step.config_id][0]
        history.append(Outcome(config_id=step.config_id, replicate=0, status="ok" if value else "failed", value=value))
    alone = blind.propose(history, [])
    steps: list[Proposal] = []
    for _ in range(5):
        step = greedy.propose(history, [one.key for one in steps])
        assert isinstance(step, Proposal)
        steps.append(step)

    assert alone == steps[0]
    assert 5 == len({step.config_id for step in steps})


def test_a_table_of_rounds_has_greedy_rounds_and_random_beside_the_search(tmp_path: Path) -> None:
    """On several nodes the table of a landscape has four lines, each with a hit rate and its interval."""
    make_archive(tmp_path / "a", axes=AXES, replicates=2, gpus=GPUS[:1], seconds=2)
    arguments = [str(tmp_path / "a"), "--trials", "4", "--nodes", "2", "--seeds", "3", "--jobs", "1"]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    lines = result.stdout.splitlines()[1:]

    assert ["adaptive", "greedy", "random", "grid"] == [
        next(word for word in line.split() if word in ("adaptive", "greedy", "random", "grid")) for line in lines
    ]
    assert all(re.search(r"\d+\.\d% \(\d+%–\d+%\)", line) for line in lines)


@pytest.mark.parametrize(("nodes", "wall_s"), [(1, 600.0), (5, 120.0), (4, 180.0)])
def test_rounds_take_as_long_as_their_longest_trial(nodes: int, wall_s: float) -> None:
    """Ten trials of a minute: ten minutes on one node, two on five, three on four."""
    known = landscape("A100", 1)
    timed = replace(known, durations_s={key: (60.0,) * len(each) for key, each in known.launches.items()})
    found = summarize(replay(timed, "random", trials=10, seeds=3, nodes=nodes))
    untimed = summarize(replay(known, "random", trials=10, seeds=1, nodes=nodes))

    assert (wall_s, 600.0) == (found.mean_wall_s, found.mean_alone_s)
    assert (None, None) == (untimed.mean_wall_s, untimed.mean_alone_s)
