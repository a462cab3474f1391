"""Requests of a demand: lengths and moments of arrival, drawn without chance as far as that can be."""

import math
import random
from collections.abc import Iterator
from statistics import NormalDist

from tokenpeak.predict.demand import Demand

STEPS = (0.7548776662466927, 0.5698402909980532)
"""Multiples of them, modulo 1, fill a square evenly however many there are: inverse powers of the plastic number."""


def lengths(demand: Demand) -> Iterator[tuple[int, int]]:
    """(input, output) of one request after another, spread as widely as the demand says."""
    asked, both = demand.longest_input_tokens, demand.longest_tokens
    answer = both - asked if asked is not None and both is not None else None
    place = 0
    while True:
        place += 1
        first, second = ((place * step) % 1 for step in STEPS)
        yield (
            _length(demand.input_tokens, demand.input_spread, first, asked),
            _length(demand.output_tokens, demand.output_spread, second, answer),
        )


def _length(mean: float, spread: float, quantile: float, most: int | None) -> int:
    """A quantile of the lognormal distribution with that mean and coefficient of variation."""
    if not spread:
        return max(1, round(mean))
    sigma = math.sqrt(math.log(1 + spread**2))
    value = mean * math.exp(sigma * NormalDist().inv_cdf(quantile) - sigma**2 / 2)
    return max(1, round(min(value, most or value)))


def arrivals(demand: Demand, number: int) -> list[float]:
    """When so many requests of a rate are due, from 0 on, always alike; their mean rate is exact. Empty without one."""
    if demand.rate_per_s is None:
        return []
    draw = random.Random(0)  # noqa: S311 - arrivals, not secrets
    shape, moments = demand.burstiness, [0.0]
    for _ in range(number - 1):
        moments.append(moments[-1] + (1.0 if math.isinf(shape) else draw.gammavariate(shape, 1 / shape)))
    scale = (number - 1) / moments[-1] / demand.rate_per_s if number > 1 else 0.0
    return [moment * scale for moment in moments]
