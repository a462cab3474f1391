"""Runs that cannot win are ended, others are not; screening runs are short."""

import numpy as np

from tokenpeak.search.racing import hopeless, shortened
from tokenpeak.workload import ClosedLoad, OpenLoad


def test_a_run_at_half_the_speed_is_hopeless() -> None:
    """Ten noisy windows at half the best speed are enough; four are not."""
    windows = np.random.default_rng(0).normal(50, 3, 10).tolist()

    assert hopeless(windows, 100.0)
    assert not hopeless(windows[:4], 100.0)
    assert hopeless([2 * window for window in windows], 50.0, higher_is_better=False)


def test_equal_runs_are_hardly_ever_ended() -> None:
    """Of 1,000 runs as fast as the best, looked at after each window, fewer than 1% are ended."""
    generator = np.random.default_rng(1)
    ended = 0
    for _ in range(1000):
        windows = generator.normal(100, 8, 30).tolist()
        ended += any(hopeless(windows[:count], 100.0) for count in range(5, 31))

    assert ended < 10


def test_screening_keeps_enough_requests() -> None:
    """A quarter of the requests, but never fewer than two for each stream, nor more than were asked for."""
    assert 100 == shortened(ClosedLoad(concurrency=8, requests=400), 0.25).requests
    assert 64 == shortened(ClosedLoad(concurrency=32, requests=96), 0.25).requests
    assert 10 == shortened(OpenLoad(rate_per_s=4, requests=10), 0.25).requests
    assert 15.0 == shortened(OpenLoad(rate_per_s=4, duration_s=60), 0.25).duration_s
