"""Intervals of means over prompts, against SciPy and by how often they hold a known truth."""

import numpy as np
import pytest
from scipy.stats import t

from tokenpeak.quality.verdict import CONFIDENCE, interval


def test_interval_is_students_for_normal_values() -> None:
    """For many normal values the bootstrap's interval is Student's, within a tenth of its width."""
    values = np.random.default_rng(4).normal(1.0, 0.2, 200)
    found = interval(list(values), ["one"] * len(values))
    half = t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))

    assert values.mean() - half == pytest.approx(found.low, abs=half / 10)
    assert values.mean() + half == pytest.approx(found.high, abs=half / 10)


def test_interval_holds_the_truth_of_skewed_values() -> None:
    """Of 300 sets of 80 lognormal values 99% intervals miss the mean on either side in at most 4%."""
    random, truth = np.random.default_rng(5), float(np.exp(0.5))
    found = [interval(list(random.lognormal(0.0, 1.0, 80)), ["a"] * 40 + ["b"] * 40) for _ in range(300)]

    assert sum(each.low > truth for each in found) <= 6
    assert sum(each.high < truth for each in found) <= 12


def test_weights_are_of_kinds() -> None:
    """A kind of few prompts weighs as it is given, not by their number."""
    found = interval([0.0] * 90 + [1.0] * 10, ["short"] * 90 + ["long"] * 10, {"short": 2.0, "long": 1.0})

    assert 1 / 3 == pytest.approx(found.estimate)
