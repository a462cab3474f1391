"""When requests came to production, from its counts: all that ended, run or wait have come. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.loadgen.traffic.readings import Array, Readings

GAPS_OF_A_WINDOW = 10
"""Mean gaps that a window holds in which arrivals are counted: burstiness shows over several gaps."""
TREND_WINDOWS = 12
"""Windows over which the rate is averaged: what goes slower is the day's shape and no burst."""
FEWEST_WINDOWS = 20
SHAPE_STEPS = 24
LEAST_BURSTINESS, MOST_BURSTINESS = 0.05, 20.0


@dataclass(frozen=True, kw_only=True)
class ObservedArrivals:
    """When requests came."""

    at_s: tuple[float, ...]
    """Seconds from the first reading on, ascending; between two readings by chance, as close together as is bursty."""
    burstiness: float | None
    """Shape of the gamma distribution of gaps that is as bursty; None: too few to say."""
    rates: tuple[tuple[float, float], ...]
    """The rate over time: pairs of a begin in s and requests/s from there on."""

    @property
    def rate_per_s(self) -> float:
        """Requests per second, over the whole time."""
        return float(np.average([rate for _, rate in self.rates])) if self.rates else 0.0


def observed_arrivals(readings: Readings, random: np.random.Generator) -> ObservedArrivals:
    """The arrivals between the first reading and the last."""
    come = sum((readings.counts[name] for name in ("requests_finished", "running", "waiting")), np.zeros(1))
    # A page is not of one moment: what ended may still be counted as running in it.
    come = np.maximum.accumulate(come)
    numbers = np.rint(np.diff(come)).astype(int)
    span = float(readings.t_s[-1])
    shape = burstiness(np.repeat(readings.t_s[:-1] + np.diff(readings.t_s) / 2, numbers), span)
    at_s = _between(readings.t_s, numbers, shape or 1.0, random)
    edges = np.linspace(0.0, span, SHAPE_STEPS + 1)
    counted, _ = np.histogram(at_s, edges)
    return ObservedArrivals(
        at_s=tuple(at_s.tolist()),
        burstiness=shape,
        rates=tuple(zip(edges[:-1].tolist(), (counted / np.diff(edges)).tolist(), strict=True)),
    )


def _between(t_s: Array, numbers: NDArray[np.int64], shape: float, random: np.random.Generator) -> Array:
    """So many arrivals between each reading and the next.

    Gamma gaps of which only the sum is known are shares of it by Dirichlet's distribution of their shape; the first and
    the last gap reach beyond the readings.
    """
    at_s = [np.empty(0)]
    for begin_s, width_s, number in zip(t_s[:-1], np.diff(t_s), numbers, strict=True):
        if number:
            gaps = random.dirichlet([1.0, *[shape] * (number - 1), 1.0])
            at_s.append(begin_s + width_s * np.cumsum(gaps[:-1]))
    return np.concatenate(at_s)


def even_arrivals(number: int, rate_per_s: float, random: np.random.Generator) -> ObservedArrivals:
    """So many arrivals by chance at an even rate: a Poisson process."""
    at_s = np.cumsum(random.exponential(1 / rate_per_s, number))
    return ObservedArrivals(at_s=tuple(at_s.tolist()), burstiness=None, rates=((0.0, rate_per_s),))


def burstiness(at_s: NDArray[np.float64], span_s: float) -> float | None:
    """1 ÷ the index of dispersion of counts: 1 for Poisson, below 1 in bursts, above 1 more even than chance.

    A renewal process with gamma gaps of shape k has an index of 1/k over many gaps (Cox and Lewis 1966, ch. 4).
    """
    windows = int(len(at_s) / GAPS_OF_A_WINDOW)
    if windows < FEWEST_WINDOWS or span_s <= 0:
        return None
    counts, _ = np.histogram(at_s, np.linspace(0.0, span_s, windows + 1))
    return float(np.clip(1 / max(1e-9, _dispersion(counts)), LEAST_BURSTINESS, MOST_BURSTINESS))


def _dispersion(counts: NDArray[np.int64]) -> float:
    """Variance by mean of counts around their moving average."""
    size = min(TREND_WINDOWS, len(counts))
    kernel = np.ones(size) / size
    trend: Array = np.convolve(counts, kernel, mode="same") / np.convolve(np.ones(len(counts)), kernel, mode="same")
    # A window is part of its own average, which takes so much from its variance.
    unbiased = size / (size - 1)
    return float(np.mean((counts - trend) ** 2 / np.maximum(trend, 1e-9)) * unbiased)
