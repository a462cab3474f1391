from pathlib import Path

import pytest
from click.testing import CliRunner

from archive_factory import make_archive, sweep_spec
from tokenpeak.cli.predict import explain
from tokenpeak.predict.correction import PredictedTrial, learn, measured_as_predicted
from tokenpeak.records import Config, ModelName, Prediction


def config(seqs: str, eager: str) -> Config:
    return Config(
        config_id=f"{seqs}{eager}".ljust(12, "0")[:12],
        name=f"{seqs}, {eager}",
        choices={"max_num_seqs": seqs, "enforce_eager": eager},
        model=ModelName(name="m", served_name="m"),
    )


PREDICTION = Prediction(output_tok_per_s=1000.0, ttft_s=0.1, tpot_s=0.02, uncertainty=0.45)


def trial(seqs: str, eager: str, ratio: float) -> PredictedTrial:
    return PredictedTrial(
        config=config(seqs, eager), prediction=PREDICTION, measured={"output_tok_per_s": 1000.0 * ratio}
    )


def test_takes_over_what_all_trials_share() -> None:
    """When every trial ran at 0.7 of its prediction, so will the next, and the interval narrows."""
    seen = [trial("8", "true", 0.7), trial("16", "true", 0.7), trial("8", "false", 0.7)]
    corrected = learn(seen).apply(config("16", "false"), PREDICTION)

    assert corrected.output_tok_per_s == pytest.approx(700, rel=0.05)
    assert corrected.uncertainty is not None
    assert corrected.uncertainty < 0.25


def test_learns_what_an_alternative_costs() -> None:
    """When eager configs alone fall behind, only the eager ones to come are lowered."""
    seen = [
        trial("8", "true", 0.7), trial("8", "false", 1.0), trial("16", "true", 0.7), trial("16", "false", 1.0),
    ]  # fmt: skip
    learned = learn(seen)
    eager = learned.apply(config("32", "true"), PREDICTION).output_tok_per_s
    graphs = learned.apply(config("32", "false"), PREDICTION).output_tok_per_s
    assert eager is not None
    assert graphs is not None

    assert eager / graphs == pytest.approx(0.7, rel=0.08)


def test_explains_an_archive_in_sentences(tmp_path: Path) -> None:
    """`tokenpeak explain` prints the error per metric for each kind of hardware, and marks simulated results."""
    result = CliRunner().invoke(explain, [str(make_archive(tmp_path / "a").path)], catch_exceptions=False)

    assert 0 == result.exit_code
    assert "prediction of output_tok_per_s: measured ÷ predicted" in result.stdout
    assert "(simulated)" in result.stdout


def test_a_prediction_is_compared_over_the_whole_load(tmp_path: Path) -> None:
    """A closed loop's prediction has ramp and drain in it, and so has the measurement that it is held against."""
    made = make_archive(tmp_path / "a")
    trial = next(each for each in made.trials() if each.status == "ok")
    runs = tuple(
        run.model_copy(update={"summary": run.summary.model_copy(update={"output_tok_per_s": 1e9})})
        for run in trial.runs
    )
    found = measured_as_predicted(trial.model_copy(update={"runs": runs}), sweep_spec())

    assert found["output_tok_per_s"] == pytest.approx(
        (trial.runs[0].summary.output_tokens or 0) / (trial.runs[0].summary.duration_s or 1)
    )
