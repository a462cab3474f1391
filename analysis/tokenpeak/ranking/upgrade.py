"""Effect of another engine build with everything else equal: how many times faster, with bounds, or tied.

A pair is one config launched with both builds. Values are compared as logarithms and each pair counts once, by the mean
of its launches. Bounds rest on how much launches of one config and build vary, pooled over all of them; where none was
repeated, on how much the pairs differ among each other; of a single pair launched once there are none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from tokenpeak.ranking.intervals import CONFIDENCE, t_critical, variance
from tokenpeak.ranking.spread import Spread
from tokenpeak.ranking.ties import WIDEST
from tokenpeak.spec.search import MARGIN

SAME = ("model_name", "model_revision", "flags", "env")
"""What two configs have alike that differ in their engine build alone, as columns of the frame of configs."""

Outcome = Literal["faster", "slower", "tied", "not known"]
"""tied: not distinguishable, or different by less than the margin. not known: there are no bounds, or bounds that hold
no difference and leave open anything from half to double."""


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """The new build's value over the old one's; bounds are None where launches give none."""

    ratio: float
    low: float | None
    high: float | None
    pairs: int
    launches: int
    outcome: Outcome


def upgrade(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    higher_is_better: bool,
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
) -> Upgrade | None:
    """The effect seen in pairs of (old launches' values, new launches' values), all positive; None without a pair.

    `spread` is what is known of it beside these launches: the interval is the wider of the two.
    """
    logs = [tuple([math.log(value) for value in side] for side in pair) for pair in pairs if all(pair)]
    if not logs:
        return None
    differences = [fmean(new) - fmean(old) for old, new in logs]
    return shown(
        fmean(differences),
        _half_width(logs, differences, confidence, spread),
        higher_is_better=higher_is_better,
        margin=margin,
        pairs=len(logs),
        launches=sum(len(side) for pair in logs for side in pair),
    )


def shown(
    effect: float, half: float | None, *, higher_is_better: bool, margin: float, pairs: int, launches: int
) -> Upgrade:
    """What an effect (log) shows whose interval has this half width; None: it has none."""
    is_apart = half is not None and abs(effect) > max(half, math.log1p(margin))
    if half is not None and half > WIDEST and not is_apart:
        half = None  # it says nothing
    outcome: Outcome = "not known"
    if half is not None:
        outcome = "tied" if not is_apart else "faster" if (effect > 0) == higher_is_better else "slower"
    return Upgrade(
        ratio=math.exp(effect),
        low=None if half is None else math.exp(effect - half),
        high=None if half is None else math.exp(effect + half),
        pairs=pairs,
        launches=launches,
        outcome=outcome,
    )


def _half_width(
    logs: Sequence[Sequence[Sequence[float]]],
    differences: Sequence[float],
    confidence: float,
    spread: Spread | None,
) -> float | None:
    """Half of the interval of the mean difference; None where nothing was repeated."""
    sides = [side for pair in logs for side in pair]
    freedom = sum(len(side) - 1 for side in sides)
    if freedom:
        squares = sum((value - fmean(side)) ** 2 for side in sides for value in side)
        launches = math.sqrt(sum(1 / len(side) for side in sides)) / len(logs)
        error = math.sqrt(squares / freedom) * launches
        if spread is not None:
            known = t_critical(spread.freedom, confidence) * spread.deviation * launches
            return max(known, t_critical(freedom, confidence) * error)
    elif len(differences) > 1:
        freedom = len(differences) - 1
        error = math.sqrt(variance(differences) / len(differences))
    else:
        return None
    return t_critical(freedom, confidence) * error
