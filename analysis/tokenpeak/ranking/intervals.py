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


@lru_cache(maxsize=4096)
def range_critical(means: int, freedom: int, confidence: float) -> float:
    """The value that the studentized range of `means` means stays below with this confidence.

    It lies between that of two means, √2 times Student's t, and the bound by which all pairs are compared at once.
    """
    low = math.sqrt(2) * t_critical(freedom, confidence)
    if means <= 2:
        return low if means == 2 else 0.0
    from scipy.optimize import brentq
    from scipy.stats import studentized_range  # more than a second, which only a close comparison spends

    def beyond(value: float) -> float:
        return float(studentized_range.cdf(value, means, freedom)) - confidence

    return float(brentq(beyond, low, range_bound(means, freedom, confidence), rtol=1e-8))


def range_bound(means: int, freedom: int, confidence: float) -> float:
    """What `range_critical` is at most: Student's t of as many pairs as there are (Bonferroni)."""
    return math.sqrt(2) * t_critical(freedom, 1 - (1 - confidence) / max(1, math.comb(means, 2)))
