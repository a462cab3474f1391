"""Drift of power with the boards' temperature: a line through log power over degrees, a level for each config.

Only launches of one config are compared with each other, so that a config that heats the boards and draws more for its
load is no drift. A slope is significant where its 95% interval leaves out zero: without drift that is 5% of sweeps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.ranking.intervals import CONFIDENCE, t_critical

FEWEST_FREEDOM = 2
"""Launches beyond one for each config and one for the slope."""


@dataclass(frozen=True, kw_only=True)
class TemperatureDrift:
    """By how much the power of one config changes with each degree, as a share, and over which degrees."""

    per_degree: float
    low: float
    high: float
    coolest_c: float
    hottest_c: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def temperature_drift(launches: Mapping[str, Sequence[tuple[float, float]]]) -> TemperatureDrift | None:
    """The drift seen by each config's launches, each (°C when its run began, W); None where too few were repeated."""
    pairs = []
    for own in launches.values():
        warmth, level = fmean(each[0] for each in own), fmean(math.log(each[1]) for each in own)
        pairs += [(degrees - warmth, math.log(power) - level) for degrees, power in own]
    freedom = len(pairs) - len(launches) - 1
    squares = sum(degrees**2 for degrees, _ in pairs)
    if freedom < FEWEST_FREEDOM or squares == 0:
        return None
    slope = sum(degrees * log for degrees, log in pairs) / squares
    left = sum((log - slope * degrees) ** 2 for degrees, log in pairs)
    half = t_critical(freedom, CONFIDENCE) * math.sqrt(left / freedom / squares)
    every = [degrees for own in launches.values() for degrees, _ in own]
    return TemperatureDrift(
        per_degree=math.expm1(slope),
        low=math.expm1(slope - half),
        high=math.expm1(slope + half),
        coolest_c=min(every),
        hottest_c=max(every),
    )
