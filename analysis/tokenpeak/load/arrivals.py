"""A load level as a timetable. Pure: a level and a seed in, moments out; nothing here waits.

Gaps of an open loop are constant, exponential (Poisson) or gamma with the same mean; `burstiness` is the gamma's shape.
"""

import numpy as np
from numpy.typing import NDArray

from tokenpeak.workload import OpenLoad


def gaps(
    number: int, rate_per_s: float, arrivals: str, burstiness: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """Seconds between `number` successive arrivals at a mean rate."""
    if arrivals == "constant":
        return np.full(number, 1 / rate_per_s)
    if arrivals == "poisson":
        return random.exponential(1 / rate_per_s, number)
    return random.gamma(burstiness, 1 / (rate_per_s * burstiness), number)


def timetable(level: OpenLoad, seed: int) -> tuple[float, ...]:
    """When each request of an open loop is due, warm-up included, in seconds after the run's start; the first at 0."""
    random = np.random.default_rng([seed, 0xA1])
    if level.requests is not None:
        number = level.requests + level.warmup_requests
    else:
        assert level.duration_s is not None
        number = int(level.duration_s * level.rate_per_s * 1.5) + level.warmup_requests + 64
    between = gaps(number - 1, level.rate_per_s, level.arrivals, level.burstiness, random)
    due = np.concatenate([[0.0], np.cumsum(between)])
    if level.duration_s is not None:
        warm = due[level.warmup_requests]
        due = due[due < warm + level.duration_s]
    return tuple(due.tolist())
