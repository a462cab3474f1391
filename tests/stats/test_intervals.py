"""Intervals hold what they promise."""

import numpy as np
import pytest

from tokenpeak.stats.intervals import (
    clopper_pearson_interval,
    mean_interval,
    ratio_interval,
    requests_needed,
    slo_confidence,
    wilson_interval,
)


def test_ratio_interval_holds_the_truth_as_often_as_it_says() -> None:
    """With four launches a side and unequal noise, a 95% interval misses a ratio of 1.1 about 5 times in 100."""
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(1000):
        first = 1.1 * np.exp(generator.normal(0, 0.05, 4))
        second = np.exp(generator.normal(0, 0.02, 4))
        held += ratio_interval(first.tolist(), second.tolist()).holds(1.1)

    assert 930 <= held <= 975


def test_single_launches_have_no_bounds() -> None:
    """One launch on each side gives an estimate and no bounds; one on one side borrows the other's spread."""
    assert ratio_interval([2.0], [1.0]).low is None
    assert mean_interval([2.0]).high is None
    assert ratio_interval([2.0], [1.0, 1.1]).low is not None


def test_known_binomial_intervals() -> None:
    """Wilson's and Clopper and Pearson's intervals for 8 of 10, from their tables."""
    assert pytest.approx((0.4902, 0.9433), abs=1e-4) == (wilson_interval(8, 10).low, wilson_interval(8, 10).high)
    exact = clopper_pearson_interval(8, 10)
    assert pytest.approx((0.4439, 0.9748), abs=1e-4) == (exact.low, exact.high)


def test_too_few_requests_for_a_p99() -> None:
    """299 requests within a limit are the fewest that show a p99 with 95% confidence."""
    assert 299 == requests_needed(0.99)
    assert slo_confidence(298, 298, 0.99) < 0.95 <= slo_confidence(299, 299, 0.99)


def test_a_share_just_short_of_the_percentile_shows_nothing() -> None:
    """97 of 100 within the limit is no evidence for a p99."""
    assert slo_confidence(97, 100, 0.99) < 0.2
