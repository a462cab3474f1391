"""Arrival times of an open loop: constant, Poisson, gamma, staged. Pure: a level and a seed in, moments out.

Gaps of an open loop are constant, exponential (Poisson) or gamma with the same mean; `burstiness` is the gamma's shape.
Where the rate changes with time, the same gaps are laid out in expected arrivals and mapped back to seconds, so that a
staged level has the same burstiness as a constant one.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpeak.spec.load import OpenLoad, Stage, StagedLoad

RAMP_STEP_S = 0.25


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
        # Six standard deviations more than are expected, so that the time is always filled.
        expected = level.duration_s * level.rate_per_s
        number = int(expected + 6 * np.sqrt(expected / min(level.burstiness, 1.0))) + level.warmup_requests + 16
    between = gaps(number - 1, level.rate_per_s, level.arrivals, level.burstiness, random)
    due = np.concatenate([[0.0], np.cumsum(between)])
    if level.requests is not None and number > 1:
        # Arrivals given their number in the window: the rate is exact, and only their order is left to chance.
        due *= (number - 1) / level.rate_per_s / due[-1]
    if level.duration_s is not None:
        warm = due[level.warmup_requests]
        due = due[due < warm + level.duration_s]
    return tuple(due.tolist())


def staged_timetable(level: StagedLoad, seed: int) -> tuple[float, ...]:
    """When each request of a staged level with rates is due, in seconds after the run's start."""
    random = np.random.default_rng([seed, 0xA2])
    times, expected = [0.0], [0.0]
    before = 0.0
    for stage in level.stages:
        rate = float(stage.rate_per_s or 0)
        begin = before if stage.ramp else rate
        offset, arrived = times[-1], expected[-1]
        for share in np.linspace(0, 1, 65)[1:]:
            times.append(offset + share * stage.duration_s)
            expected.append(arrived + (begin + (rate - begin) * share / 2) * share * stage.duration_s)
        before = rate
    total = expected[-1]
    number = int(total + 6 * np.sqrt(total / min(level.burstiness, 1.0))) + 16
    arrivals = np.cumsum(gaps(number, 1.0, level.arrivals, level.burstiness, random))
    return tuple(np.interp(arrivals[arrivals < total], expected, times).tolist())


def staged_caps(stages: Sequence[Stage]) -> tuple[tuple[float, int], ...]:
    """The concurrency of a staged level over time as (offset, concurrency); ramps go in steps of a quarter second."""
    caps: list[tuple[float, int]] = []
    offset, before = 0.0, 0
    for stage in stages:
        cap = int(stage.concurrency or 0)
        if stage.ramp:
            steps = max(1, int(stage.duration_s / RAMP_STEP_S))
            caps += [
                (offset + stage.duration_s * step / steps, round(before + (cap - before) * (step + 1) / steps))
                for step in range(steps)
            ]
        else:
            caps.append((offset, cap))
        offset += stage.duration_s
        before = cap
    return tuple((at, max(cap, 0)) for at, cap in caps)
