"""Confidence intervals: of a mean over few launches, by how much they vary, and of a share over many trials.

Launches are compared as logarithms, by Student's t: speeds vary by shares, and a handful of launches is too few for a
bootstrap. Shares use the binomial distribution. SciPy's distributions are imported where one is asked for:
that takes a second of processor time, which a sweep that only drives nodes should not cost.

How much a config's launches vary is said by its own and by those of the other configs, as far as their spreads are
alike: where they are, many configs of few launches say how much each varies; where they are not, each says it for
itself alone (moderated variance: Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3).

The interval of a config's energy holds what its sensor leaves open and the spread from launch to launch, which is
more: a warm board draws more, and a batch fills differently. Two configs whose intervals overlap are tied.

A percentile p of requests lies within its limit when a share p of all requests does. A run's requests count as draws
from all; those that waited in one queue resemble each other, so that the confidence is what a run can give at most.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, median
from typing import TypeVar

from tokenpeak.spec.slo import Slo

CONFIDENCE = 0.95
ROUNDING = 1e-12
"""Log values that differ by less are the same number."""

Key = TypeVar("Key", bound=Hashable)
LEAST_SHARE = 1e-5
"""Of the median variance: a variance of launches that happened to be equal counts as so much."""
_SENSOR_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


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
    """Bound of `range_critical` from above: Student's t of as many pairs as there are (Bonferroni)."""
    return math.sqrt(2) * t_critical(freedom, 1 - (1 - confidence) / max(1, math.comb(means, 2)))


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviation of the log value between launches, and by how many degrees of freedom it is known."""

    deviation: float
    freedom: float


def spreads(launches: Mapping[Key, Sequence[Sequence[float]]]) -> dict[Key, Spread]:
    """The spread of each config by all configs' launches, positive values of one figure; empty without a repeat.

    A config's launches are in groups, such as the sides of a gate, each of which has a mean of its own.
    """
    own = {config: within for config, groups in launches.items() if (within := _own(groups))}
    freedom = sum(count for _, count in own.values())
    if not freedom:
        return {}
    prior, shared = _prior(list(own.values()))
    moderated: dict[Key, Spread] = {}
    for config in launches:
        squares, count = own.get(config, (0.0, 0))
        if math.isinf(shared):
            moderated[config] = Spread(deviation=math.sqrt(prior), freedom=float(freedom))
        elif shared + count > 0:
            value = (shared * prior + count * squares) / (shared + count)
            moderated[config] = Spread(deviation=math.sqrt(value), freedom=min(shared + count, float(freedom)))
    return moderated


def _own(groups: Sequence[Sequence[float]]) -> tuple[float, int] | None:
    """The variance of log values within the groups, and its degrees of freedom; None without a repeat."""
    repeated = [[math.log(value) for value in group] for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in repeated)
    if not freedom:
        return None
    return sum(variance(group) * (len(group) - 1) for group in repeated) / freedom, freedom


def _prior(own: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """The variance that configs share, and how many degrees of freedom it is worth: none of a single config.

    `own` are each config's variance and its degrees of freedom.
    """
    from scipy.special import polygamma, psi

    pooled = sum(value * count for value, count in own) / sum(count for _, count in own)
    middle = median(value for value, _ in own)
    if len(own) == 1:
        return pooled, 0.0
    if middle == 0:
        return pooled, math.inf
    logs = [
        math.log(max(value, LEAST_SHARE * middle)) - float(psi(count / 2)) + math.log(count / 2) for value, count in own
    ]
    excess = variance(logs) - fmean(float(polygamma(1, count / 2)) for _, count in own)
    if excess <= 0:
        return pooled, math.inf
    half = _inverse_trigamma(excess)
    return math.exp(fmean(logs) + float(psi(half)) - math.log(half)), 2 * half


def _inverse_trigamma(value: float) -> float:
    """The x whose trigamma is `value` (Newton's method on 1/trigamma, which is nearly a line)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step < 1e-9 * x:
            break
    return x


@dataclass(frozen=True, kw_only=True)
class LaunchEnergy:
    """One launch's energy per output token and the ends of its sensor's interval, in J; None where it has none."""

    joule: float
    low: float | None = None
    high: float | None = None

    @property
    def variance(self) -> float:
        """Of its logarithm, by the sensor's interval."""
        if self.low is None or self.high is None or self.low <= 0:
            return 0.0
        return (math.log(self.high / self.low) / (2 * _SENSOR_Z)) ** 2


def energy_intervals(
    launches: Mapping[str, Sequence[LaunchEnergy]], *, spread: float, freedom: float
) -> dict[str, tuple[float, float]]:
    """The 95% interval of each config's geometric mean over its launches, in J per output token.

    `spread` is the standard deviation of the log value between launches, known by `freedom` > 0 degrees of freedom.
    """
    wide = t_critical(freedom, CONFIDENCE)
    intervals = {}
    for config, own in launches.items():
        # The sensor's error is part of the spread that was seen: the larger of the two holds both.
        variance = max(spread**2, fmean(each.variance for each in own))
        mean, half = fmean(math.log(each.joule) for each in own), wide * math.sqrt(variance / len(own))
        intervals[config] = (math.exp(mean - half), math.exp(mean + half))
    return intervals


@lru_cache(maxsize=4096)
def slo_confidence(within: int, n: int, percentile: float) -> float:
    """The confidence that at least `percentile` (0..1) of all requests hold a limit that `within` of `n` held.

    1 − the probability of seeing so many if the share were just short of it: the binomial probability of at most n −
    `within` requests beyond the limit. The sum stands here because SciPy's takes a second or more to import, for which
    every opened archive with an SLO would wait.
    """
    if n == 0:
        return 0.0
    log_share, log_beyond = math.log(percentile), math.log1p(-percentile)
    log_ways, chances = 0.0, []
    for beyond in range(n - within + 1):
        chances.append(math.exp(log_ways + beyond * log_beyond + (n - beyond) * log_share))
        log_ways += math.log((n - beyond) / (beyond + 1)) if beyond < n else 0.0
    return max(0.0, 1 - math.fsum(chances))


def requests_to_assure(percentile: float, confidence: float = CONFIDENCE) -> int:
    """The fewest requests, all within the limit, that assure a percentile with this confidence: 299 for a p99."""
    return math.ceil(math.log(1 - confidence) / math.log(percentile))


def assurance(slo: Slo, within_limits: Mapping[str, int], sent: int | None) -> float | None:
    """The lowest confidence of the limits; None where a limit was not counted over requests."""
    confidences = []
    for metric, percentile, _ in slo.limits():
        within = within_limits.get(f"{metric}_{percentile}")
        if within is None or sent is None:
            return None
        confidences.append(slo_confidence(within, sent, share(percentile)))
    return min(confidences, default=None)


def assurance_of_all(slo: Slo, counts: Iterable[tuple[Mapping[str, int], int | None]]) -> float | None:
    """The confidence (0..1) by the requests of all runs: how many each had within each limit, of how many.

    None where a limit or the requests were not counted in each.
    """
    every = list(counts)
    if not every or any(sent is None for _, sent in every):
        return None
    names = set.intersection(*({*within} for within, _ in every))
    pooled = {name: sum(within[name] for within, _ in every) for name in names}
    return assurance(slo, pooled, sum(sent or 0 for _, sent in every))


def share(percentile: str) -> float:
    """`p99` as 0.99."""
    return int(percentile.removeprefix("p")) / 100
