"""Confidence of an SLO that a run met: a percentile of few requests may be luck.

A percentile p lies within its limit when a share p of all requests does. The run's requests count as draws from all;
those that waited in one queue resemble each other, so that the confidence is what a run can give at most.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

from tokenpeak.ranking.intervals import CONFIDENCE
from tokenpeak.spec.slo import Slo


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


def requests_needed(percentile: float, confidence: float = CONFIDENCE) -> int:
    """The fewest requests, all within the limit, that assure a percentile with this confidence: 299 for a p99."""
    return math.ceil(math.log(1 - confidence) / math.log(percentile))


def assurance(slo: Slo, within_limits: Mapping[str, int], sent: int | None) -> float | None:
    """The lowest confidence of the limits; None where a limit was not counted over requests."""
    found = []
    for metric, percentile, _ in slo.limits():
        within = within_limits.get(f"{metric}_{percentile}")
        if within is None or sent is None:
            return None
        found.append(slo_confidence(within, sent, share(percentile)))
    return min(found, default=None)


def share(percentile: str) -> float:
    """`p99` as 0.99."""
    return int(percentile.removeprefix("p")) / 100
