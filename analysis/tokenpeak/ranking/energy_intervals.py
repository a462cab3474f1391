"""Interval of a config's energy over its launches: the sensor's readings, and the spread from launch to launch.

A launch's own interval holds what its sensor leaves open. Two launches of one config differ by more: a warm board draws
more, and a batch fills differently. That spread is pooled over all configs of one kind of hardware, as logarithms. Few
launches show it badly, so it begins at a usual one, which counts as so many launches and gives way to what is seen.
Two configs whose intervals overlap are tied.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from tokenpeak.ranking.intervals import CONFIDENCE, t_critical

USUAL_SPREAD = 0.015
"""Standard deviation between launches where none was repeated: that of ±10 °C on a board that draws 0.15% more for each
degree. An assumption, stated on the page."""
USUAL_WEIGHT = 8
"""Launches that the usual spread counts as."""
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


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
        return (math.log(self.high / self.low) / (2 * _Z)) ** 2


def energy_intervals(launches: Mapping[str, Sequence[LaunchEnergy]]) -> dict[str, tuple[float, float]]:
    """The 95% interval of each config's geometric mean over its launches, in J per output token."""
    logs = {config: [math.log(each.joule) for each in own] for config, own in launches.items()}
    seen = sum((log - fmean(own)) ** 2 for own in logs.values() for log in own)
    freedom = sum(len(own) - 1 for own in logs.values())
    pooled = (seen + USUAL_WEIGHT * USUAL_SPREAD**2) / (freedom + USUAL_WEIGHT)
    wide = t_critical(freedom + USUAL_WEIGHT, CONFIDENCE)
    found = {}
    for config, own in logs.items():
        # The sensor's error is part of the spread that was seen: the larger of the two holds both.
        variance = max(pooled, fmean(each.variance for each in launches[config]))
        half = wide * math.sqrt(variance / len(own))
        found[config] = (math.exp(fmean(own) - half), math.exp(fmean(own) + half))
    return found
