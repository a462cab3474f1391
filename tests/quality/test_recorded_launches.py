"""Forty launches of one sound model on a real engine, and damaged ones: no false alarm, and the damage is found.

`recorded-cpu.json.zst` is of three sweeps on vLLM's CPU engine: the model at one place after another, with
settings that batch or compile otherwise, and with normal noise of a share of each matrix's spread added to its weights.
"""

import random
from collections import Counter
from pathlib import Path

import pytest

from quality.recorded_launches import Recording, false_alarms, finds, read_recordings
from tokenpeak.ranking.intervals import clopper_pearson_interval

DRAWS = 40


@pytest.fixture(scope="module")
def recorded() -> list[Recording]:
    """All launches."""
    return read_recordings(Path(__file__).with_name("recorded-cpu.json.zst"))


@pytest.fixture(scope="module")
def sound(recorded: list[Recording]) -> list[Recording]:
    """Those of the sound model."""
    return [each for each in recorded if "noise" not in each.config]


@pytest.mark.e2e
def test_no_sound_launch_fails(sound: list[Recording]) -> None:
    """Each against each other one: none fails, which forty launches bound at 7.2% of launches with 95% confidence."""
    counted = false_alarms([each.answers for each in sound], random.Random(26))
    alarmed = sum(counts["fail"] > 0 for counts in counted)
    bound = clopper_pearson_interval(alarmed, len(sound), confidence=0.9).high

    assert 40 == len(sound)
    assert {"pass": 40 * 39} == dict(sum(counted, Counter()))
    assert bound is not None
    assert bound < 0.073


@pytest.mark.e2e
def test_damage_is_found(recorded: list[Recording], sound: list[Recording]) -> None:
    """Noise of 8% of a matrix's spread fails with 95% of prompt sets like ours."""
    [damaged] = [each for each in recorded if each.config == "answers=noise-0_08"]
    counts = finds(damaged.answers, [each.answers for each in sound], random.Random(27), DRAWS)

    assert counts["fail"] >= 0.95 * DRAWS, counts
