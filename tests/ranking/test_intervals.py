"""Intervals have the coverage that they state."""

import numpy as np
import pytest
from scipy import stats

from tokenpeak.ranking.intervals import ratio_interval


def test_ratio_interval_holds_the_truth_as_often_as_it_says() -> None:
    """With four launches a side and unequal noise, a 95% interval misses a ratio of 1.1 about 5 times in 100."""
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(1000):
        first = 1.1 * np.exp(generator.normal(0, 0.05, 4))
        second = np.exp(generator.normal(0, 0.02, 4))
        found = ratio_interval(first.tolist(), second.tolist())
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.1 <= found.high

    assert 930 <= held <= 975


def test_single_launches_have_no_bounds() -> None:
    """One launch on each side gives an estimate and no bounds; one on one side borrows the other's spread."""
    assert ratio_interval([2.0], [1.0]).low is None
    assert ratio_interval([2.0], [1.0, 1.1]).low is not None


def test_known_welch_interval() -> None:
    """The interval is that of SciPy's Welch test on logarithms, whose degrees of freedom follow from both spreads."""
    first, second = [1.0, 1.1, 1.3], [2.0, 2.01, 2.02, 2.0]
    found = ratio_interval(first, second)
    expected = stats.ttest_ind(np.log(first), np.log(second), equal_var=False).confidence_interval(0.95)

    assert pytest.approx(np.exp([expected.low, expected.high])) == (found.low, found.high)
