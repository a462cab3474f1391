"""Confidence intervals of a mean over few launches, and of a share over many trials.

Launches are compared as logarithms, by Student's t: speeds vary by shares, and a handful of launches is too few for a
bootstrap. Shares use the binomial distribution. SciPy's distributions are imported where one is asked for:
that takes a second of processor time, which a sweep that only drives nodes should not cost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate and its bounds; bounds are None when the data cannot give them."""

    estimate: float
    low: float | None
    high: float | None
    n: int


def ratio_interval(values: Sequence[float], reference: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """How many times `reference` the values are (Welch's t on logarithms), one value for each launch.

    With a single launch on one side, the other side's spread stands for both; with one on each there are no bounds.
    """
    first, second = ([math.log(value) for value in side] for side in (values, reference))
    difference = fmean(first) - fmean(second)
    n = min(len(first), len(second))
    spread = [(variance(side) / len(side), len(side)) for side in (first, second) if len(side) > 1]
    if not spread:
        return Interval(estimate=math.exp(difference), low=None, high=None, n=n)
    if len(spread) == 1:
        (error, count), alone = spread[0], 1
        total, freedom = error + error * count / alone, float(count - 1)
    else:
        total = sum(error for error, _ in spread)
        divisor = sum(error**2 / (count - 1) for error, count in spread)
        freedom = total**2 / divisor if divisor > 0 else float(len(first) + len(second) - 2)
    half = t_critical(freedom, confidence) * math.sqrt(total)
    return Interval(
        estimate=math.exp(difference), low=math.exp(difference - half), high=math.exp(difference + half), n=n
    )


def clopper_pearson_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """The share of successes (exact), for decisions; it holds at least its confidence always."""
    if n == 0:
        return Interval(estimate=math.nan, low=None, high=None, n=0)
    tail = (1 - confidence) / 2
    from scipy import stats

    low = float(stats.beta.ppf(tail, successes, n - successes + 1)) if successes > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, successes + 1, n - successes)) if successes < n else 1.0
    return Interval(estimate=successes / n, low=low, high=high, n=n)


def t_critical(freedom: float, confidence: float = CONFIDENCE) -> float:
    """The two-sided critical value of Student's t."""
    from scipy.special import stdtrit  # a third of what scipy.stats takes to load, whose quantile is this function

    return float(stdtrit(freedom, (1 + confidence) / 2))


def variance(values: Sequence[float]) -> float:
    """The sample variance (n − 1)."""
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values) / (len(values) - 1)


WIDEST_Z = 8.5
"""Beyond so many standard deviations the normal density does not count."""
Z_NODES, S_NODES = 160, 64
TOLERANCE = 1e-7


@lru_cache(maxsize=4096)
def range_critical(means: int, freedom: int, confidence: float) -> float:
    """The value that the studentized range of `means` means stays below with this confidence."""
    low, high = 0.0, 1.0
    at_low, at_high = -confidence, _share_below(high, means, freedom) - confidence
    while at_high < 0:
        low, at_low = high, at_high
        high *= 2
        at_high = _share_below(high, means, freedom) - confidence
    # Regula falsi (Illinois): the end that stays has half its weight.
    side = 0
    while high - low > TOLERANCE * high:
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at = _share_below(middle, means, freedom) - confidence
        if abs(at) < TOLERANCE * 1e-2:
            return middle
        if at > 0:
            high, at_high = middle, at
            at_low *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            low, at_low = middle, at
            at_high *= 0.5 if side < 0 else 1.0
            side = -1
    return (low + high) / 2


def _share_below(value: float, means: int, freedom: int) -> float:
    """The probability that the studentized range is below the value."""
    from scipy.special import ndtr  # half a second of processor time, which only a comparison spends

    z, weights = _normal_nodes()
    s, s_weights = _deviation_nodes(freedom)
    others = ndtr(z)[None, :] - ndtr(z[None, :] - value * s[:, None])
    return float(means * (s_weights @ (others ** (means - 1) @ weights)))


@lru_cache(maxsize=1)
def _normal_nodes() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(Z_NODES)
    z = WIDEST_Z * nodes
    return z, WIDEST_Z * weights * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


@lru_cache(maxsize=64)
def _deviation_nodes(freedom: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Standard deviations over their true one, and their weights, by quadrature over the probability.

    In a variable t of which the probability is a polynomial that is flat at both ends: there the standard deviation is
    no smooth function of the probability, and equal steps of that are off by a ten-thousandth.
    """
    from scipy.special import chdtri

    nodes, weights = np.polynomial.legendre.leggauss(S_NODES)
    t = (nodes + 1) / 2
    above = (1 - t) ** 4 * (1 + 4 * t + 10 * t**2 + 20 * t**3)
    return np.sqrt(chdtri(freedom, above) / freedom), weights / 2 * 140 * t**3 * (1 - t) ** 3
