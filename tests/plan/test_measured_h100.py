"""What is predicted of Llama 3.1 8B on an H100, held against eight launches of vLLM 0.24 on a real one."""

from statistics import median

import pytest

from tokenpeak import paths
from tokenpeak.plan.matrix import build_plan
from tokenpeak.records import EngineBuild, Prediction, TrialRecord
from tokenpeak.spec.sweep import ModelSpec, SweepSpec
from tokenpeak.store.archive import Archive
from tokenpeak.store.pack import unpacked


@pytest.fixture(scope="module")
def launches() -> list[tuple[Prediction, TrialRecord]]:
    """Each trial with what is predicted now of its config, from the facts that were probed before the first one."""
    archive = Archive(unpacked(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"))
    sweep, trials = archive.read_sweep(), list(archive.trials())
    model = ModelSpec(name="meta-llama/Llama-3.1-8B-Instruct", served_name="llama-8b")
    # The version that its inventory asked for is part of each config's id.
    asked = (EngineBuild(name="engine", version="0.24.0"),)
    nodes = [node.model_copy(update={"engines": asked}) for node in sweep.nodes]
    (plan,) = build_plan(SweepSpec.model_validate(sweep.spec), nodes, model)
    predicted = {planned.config.config_id: planned.prediction for planned in plan.feasible}
    found = [(predicted[trial.config.config_id], trial) for trial in trials]
    return [(prediction, trial) for prediction, trial in found if prediction is not None]


def throughput(trial: TrialRecord) -> float:
    return trial.runs[0].summary.output_tok_per_s or 0.0


def test_throughput(launches: list[tuple[Prediction, TrialRecord]]) -> None:
    """Without a figure of this machine, each is predicted within a quarter, and half of them within an eighth."""
    ratios = [(prediction.output_tok_per_s or 0.0) / throughput(trial) for prediction, trial in launches]

    assert len(ratios) == 8
    assert all(0.8 < ratio < 1.25 for ratio in ratios), ratios
    assert median(abs(ratio - 1) for ratio in ratios) < 0.125


def test_best(launches: list[tuple[Prediction, TrialRecord]]) -> None:
    """Of these eight, the two predicted best are the two that were measured best, and the worst is the worst.

    Which of the two comes first is not held to: they differ by 2%, and each was launched once.
    """
    predicted = sorted(launches, key=lambda launch: -(launch[0].output_tok_per_s or 0.0))
    measured = sorted(launches, key=lambda launch: -throughput(launch[1]))

    assert {id(launch) for launch in predicted[:2]} == {id(launch) for launch in measured[:2]}
    assert predicted[-1] is measured[-1]


def test_kv_cache(launches: list[tuple[Prediction, TrialRecord]]) -> None:
    """Its size is predicted within 2%: 0.24 sets neither graphs nor a sort of the logits aside for a Llama."""
    for prediction, trial in launches:
        assert prediction.kv_cache_tokens is not None and trial.startup is not None
        tokens = trial.startup.kv_cache_tokens or 0
        assert 0.98 * tokens < prediction.kv_cache_tokens < 1.02 * tokens
