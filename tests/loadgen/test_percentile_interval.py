"""Intervals of percentiles against queues whose percentiles a long simulation gives."""

import numpy as np
import pytest

from tokenpeak.results.steady_state import percentile_interval


def latencies(load: float, number: int, random: np.random.Generator) -> np.ndarray:
    """Of a single server with exponential service of mean 1 under Poisson arrivals (Lindley's recursion)."""
    steps = np.cumsum(random.exponential(1.0, number) - random.exponential(1 / load, number))
    waits = steps - np.minimum.accumulate(np.minimum(steps, 0))
    return np.asarray(waits + random.exponential(1.0, number))


@pytest.mark.parametrize(("load", "share", "number"), [(0.5, 0.95, 1300), (0.5, 0.5, 400), (0.8, 0.95, 4000)])
def test_intervals_hold_the_percentile(load: float, share: float, number: int) -> None:
    """Of runs at half and at four fifths of capacity, nine in ten at least; requests that wait resemble each other."""
    random = np.random.default_rng(7)
    long = latencies(load, 1_000_000, random)[1000:]
    truth = float(np.quantile(long, share))
    held = 0
    for begin in random.integers(0, long.size - number, 100):
        low, high = percentile_interval(long[begin : begin + number], share)
        held += (low is None or low <= truth) and (high is None or truth <= high)

    assert held >= 88
