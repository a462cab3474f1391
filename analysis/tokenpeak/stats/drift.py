"""Whether the machine changed while it was measured: launches of the same config across the sweep.

A steady change is told by a line through the anchor's log values over time, and can be taken out of all values. A
change that is no line (a jump, a neighbour that comes and goes) shows as spread around it and cannot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from tokenpeak.stats.intervals import CONFIDENCE, t_critical

FEWEST_LAUNCHES = 3


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What the anchor says. `change` is last over first by the line, with bounds; `spread` is around the line (log).

    none: no change beyond noise, or less than the margin. steady: a change that `corrected` takes out. erratic: the
    anchor varies by more than the margin around any line, so configs must be compared within blocks or not at all.
    unknown: too few launches of the anchor.
    """

    verdict: Literal["none", "steady", "erratic", "unknown"]
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    spread: float | None = None
    slope_per_s: float = 0.0
    middle_s: float = 0.0


def drift(anchor: Sequence[tuple[float, float]], *, margin: float = 0.02, confidence: float = CONFIDENCE) -> Drift:
    """The drift seen by the anchor's launches: (seconds after the sweep's start, objective) each, in any order."""
    if len(anchor) < FEWEST_LAUNCHES:
        return Drift(verdict="unknown")
    times, logs = [time for time, _ in anchor], [math.log(value) for _, value in anchor]
    middle, level = fmean(times), fmean(logs)
    squares = sum((time - middle) ** 2 for time in times)
    if squares == 0:
        return Drift(verdict="unknown")
    slope = sum((time - middle) * (log - level) for time, log in zip(times, logs, strict=True)) / squares
    left = sum((log - level - slope * (time - middle)) ** 2 for time, log in zip(times, logs, strict=True))
    freedom = len(anchor) - 2
    spread = math.sqrt(left / freedom)
    half = t_critical(freedom, confidence) * spread / math.sqrt(squares)
    length = max(times) - min(times)
    low, high = (slope - half) * length, (slope + half) * length
    verdict: Literal["none", "steady", "erratic"] = "none"
    if spread > math.log1p(margin):
        verdict = "erratic"
    elif not low <= 0 <= high and abs(slope * length) > math.log1p(margin):
        verdict = "steady"
    return Drift(
        verdict=verdict,
        change=math.exp(slope * length),
        change_low=math.exp(low),
        change_high=math.exp(high),
        spread=spread,
        slope_per_s=slope,
        middle_s=middle,
    )


def corrected(value: float, at_s: float, seen: Drift) -> float:
    """The value as it would have been at the anchor's mean time; unchanged unless the drift is steady."""
    if seen.verdict != "steady":
        return value
    return value * math.exp(-seen.slope_per_s * (at_s - seen.middle_s))
