"""How much a config's launches vary, by its own and by those of the other configs (Smyth's moderated variance).

Configs share their spread as far as their own spreads are alike: where they are, many configs of few launches say how
much each varies; where they are not, each says it for itself alone. Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TypeVar

from tokenpeak.ranking.intervals import variance

Key = TypeVar("Key", bound=Hashable)

LEAST_SHARE = 1e-5
"""Of the median variance: a variance of launches that happened to be equal counts as so much."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviation of the log value between launches, and by how many degrees of freedom it is known."""

    deviation: float
    freedom: float


def spreads(launches: Mapping[Key, Sequence[Sequence[float]]]) -> dict[Key, Spread]:
    """The spread of each config by all configs' launches, positive values of one figure; empty without a repeat.

    A config's launches are in groups, such as the sides of a gate, each of which has a mean of its own.
    """
    own = {config: found for config, groups in launches.items() if (found := _own(groups))}
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
