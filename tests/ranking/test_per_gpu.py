"""Objectives of one GPU: throughput and highest rate ÷ the GPUs of a config's engine, and when they are default."""

import json
from pathlib import Path

import pytest

from archive_factory import make_archive, sweep_spec, trial_record
from node_models import LLAMA
from tokenpeak.plan.matrix import configs, with_objective
from tokenpeak.ranking.objective import objective_value
from tokenpeak.report import open_archive
from tokenpeak.report.ranking.standings import rank
from tokenpeak.spec.sweep import Objective, SweepSpec, parse_spec
from tokenpeak.sweep.trial.request import ends_early

SIZES = [1, 8]


def written(axes: dict[str, list[object]], **objective: str) -> SweepSpec:
    """A spec as a user writes it: an objective only where it is given."""
    raw = sweep_spec(axes).model_dump(mode="json") | {"objective": objective}
    if not objective:
        del raw["objective"]
    return parse_spec(raw, Path("written.yml"))


def objective_of(spec: SweepSpec) -> tuple[SweepSpec, tuple[str, ...]]:
    """The spec with its objective, and the note."""
    return with_objective(spec, configs(spec, LLAMA))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of tensor parallel over one and over eight GPUs of one node."""
    folder = tmp_path_factory.mktemp("per-gpu") / "20261120-220000-groups-sim"
    make_archive(folder, axes={"tensor_parallel_size": SIZES}, gpus=["NVIDIA L4"], gpus_a_node=8, seconds=3)
    return folder


def raw_speeds(archive: Path) -> dict[int, float]:
    """Output tok/s of the objective's run by the engine's GPUs, from the raw files."""
    trials = [json.loads(path.read_text()) for path in sorted((archive / "trials").glob("*.json"))]
    return {
        trial["config"]["flags"]["tensor_parallel_size"]: trial["runs"][0]["summary"]["output_tok_per_s"]
        for trial in trials
    }


def test_idle_gpus_do_not_win(archive: Path) -> None:
    """Eight GPUs give more than one and less than eight times as much: as a whole they win, by GPU they do not."""
    speeds = raw_speeds(archive)
    view, asked = open_archive(archive), open_archive(archive, objective="output_tok_per_s_per_gpu")
    whole = rank(view, view.hardware[0]).frame.row(0, named=True)
    each = rank(asked, asked.hardware[0]).frame.row(0, named=True)

    assert ("8", speeds[8]) == (whole["axis_tensor_parallel_size"], pytest.approx(whole["objective"]))
    assert ("1", speeds[1]) == (each["axis_tensor_parallel_size"], pytest.approx(each["objective"]))
    assert speeds[8] / 8 < speeds[1] < speeds[8]


def test_the_rate_of_a_gpu_is_the_highest_rate_over_its_gpus() -> None:
    """`max_rate_per_s_per_gpu` is the rate of the engine by the groups of its flags."""
    trial, _ = trial_record(sweep_spec())
    groups = {"tensor_parallel_size": 2, "data_parallel_size": 3}
    flags = {**trial.config.flags, **groups}
    wide = trial.model_copy(update={"config": trial.config.model_copy(update={"flags": flags})})
    spec = sweep_spec().model_copy(update={"objective": Objective(metric="max_rate_per_s")})
    aim = sweep_spec().model_copy(update={"objective": Objective(metric="max_rate_per_s_per_gpu")})
    whole = objective_value(wide, spec)

    assert whole is not None
    assert pytest.approx(whole / 6) == objective_value(wide, aim)
    assert aim.objective.is_rate
    assert not ends_early(aim)


def test_default_where_configs_take_different_numbers_of_gpus() -> None:
    """An objective that is not given is by GPU there, and a note says so; equal numbers change nothing."""
    several, said = objective_of(written({"tensor_parallel_size": [1, 8]}))
    same, silent = objective_of(written({"max_num_seqs": [8, 64]}))

    assert "output_tok_per_s_per_gpu" == several.objective.metric
    assert said == (
        "configs take 1 or 8 GPUs, so they are ranked by output_tok_per_s_per_gpu; "
        "objective: {metric: output_tok_per_s} ranks them as a whole",
    )
    assert ("output_tok_per_s", ()) == (same.objective.metric, silent)
