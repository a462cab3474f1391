"""Changes from one side to another, each with bounds, or tied: by another engine build, and of many figures at once.

A pair of `upgrade` is one config launched with both builds. Values are compared as logarithms and each pair counts
once, by the mean of its launches. Bounds rest on how much launches of one config and build vary, pooled over all of
them; where none was repeated, on how much the pairs differ among each other; of a single pair launched once there are
none.

A comparison of `changes` is one figure of one config under one load, launched again on each side. Its interval is
Student's t of its own launches, at a confidence by which all intervals of the family hold together in 95% (Bonferroni):
equal sides are called different in 5% of families at most, however the figures of a launch hang together and however
much configs differ in their noise. The spread that configs of a figure share makes an interval wider where a few
launches happen to be alike, as they do where launches come in two sorts; it makes none narrower: a pooled spread alone
calls a noisy config changed far more often (two thirds of families of forty configs that differ twofold). Where
launches were made on several nodes, both the difference and the spreads are within nodes.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from tokenpeak.ranking.intervals import CONFIDENCE, Spread, spreads, t_critical, variance
from tokenpeak.ranking.nodes import by_node, within_nodes
from tokenpeak.ranking.ties import WIDEST
from tokenpeak.spec.sweep import MARGIN

SAME = ("model_name", "model_revision", "flags", "env")
"""Settings alike in two configs that differ in their engine build alone, as columns of the frame of configs."""

Outcome = Literal["faster", "slower", "tied", "not known"]
"""tied: not distinguishable, or different by less than the margin. not known: there are no bounds, or bounds that hold
no difference and leave open anything from half to double."""
FEWEST_LAUNCHES = 2
"""Of each side: a single launch does not say how much launches vary."""
POWER = 0.95
"""In which share of families a change of the stated size is found."""
SURPLUS = 0.01
"""Aimed at beyond it: a few configs may look alike in their spread and not be."""
_QUANTILES = 100
"""Points by which a chi-squared distribution is averaged over."""


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
    """The change by an effect (log) whose interval has this half width; None: it has none."""
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


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The launches' values of one figure of one config under one load, all positive."""

    figure: Hashable
    """The figure, its load and hardware; its configs share what is known of their spread."""
    old: Sequence[float]
    new: Sequence[float]
    higher_is_better: bool
    old_nodes: Sequence[str]
    """The node of each launch."""
    new_nodes: Sequence[str]

    @property
    def is_repeated(self) -> bool:
        """Whether both sides were launched often enough."""
        return min(len(self.old), len(self.new)) >= FEWEST_LAUNCHES


def changes(compared: Sequence[Compared], *, margin: float = MARGIN, confidence: float = CONFIDENCE) -> list[Upgrade]:
    """The change by each comparison; the intervals of those that are repeated hold all together at `confidence`."""
    each = of_each(sum(one.is_repeated for one in compared), confidence)
    known: dict[int, Spread] = {}
    for figure in dict.fromkeys(one.figure for one in compared):
        groups = {
            number: [*by_node(one.old, one.old_nodes), *by_node(one.new, one.new_nodes)]
            for number, one in enumerate(compared)
            if one.figure == figure
        }
        known |= spreads(groups)
    return [_change(one, known.get(number), margin, each) for number, one in enumerate(compared)]


def _change(one: Compared, spread: Spread | None, margin: float, confidence: float) -> Upgrade:
    """The change by one comparison: within nodes where there are several, of which the sides share one."""
    difference = within_nodes(one.old, one.new, one.old_nodes, one.new_nodes)
    if difference is None:
        change = upgrade(
            [(one.old, one.new)],
            higher_is_better=one.higher_is_better,
            margin=margin,
            confidence=confidence,
            spread=spread,
        )
        assert change is not None, "both sides have values"
        return change
    half = t_critical(difference.freedom, confidence) * difference.deviation * difference.launches
    if spread is not None:
        half = max(half, t_critical(spread.freedom, confidence) * spread.deviation * difference.launches)
    return shown(
        difference.effect,
        half,
        higher_is_better=one.higher_is_better,
        margin=margin,
        pairs=1,
        launches=len(one.old) + len(one.new),
    )


def of_each(comparisons: int, confidence: float = CONFIDENCE) -> float:
    """The confidence of each of so many intervals, by which all hold together."""
    return 1 - (1 - confidence) / max(comparisons, 1)


def smallest_change(
    spread: Spread,
    old: int,
    new: int,
    *,
    comparisons: int,
    nodes: int = 1,
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
    power: float = POWER + SURPLUS,
) -> float | None:
    """The smallest change (log) that `changes` finds with this power; None with too few launches to find any.

    `spread` is what is known of the config's launches beforehand, with its own uncertainty; `old` and `new` launches
    are compared, in a family of so many `comparisons`. Of several `nodes` each launches both sides as often.
    """
    freedom = old + new - nodes - 1
    if min(old, new) < FEWEST_LAUNCHES or freedom < 1:
        return None
    if spread.deviation == 0:
        return math.log1p(margin)
    import numpy as np
    from scipy.special import chdtri, ndtr

    each = of_each(comparisons, confidence)
    critical, shared = t_critical(freedom, each), t_critical(max(spread.freedom, freedom), each)
    error = spread.deviation * math.sqrt(1 / old + 1 / new)
    points = 1 - (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    # What is known beforehand ÷ the truth, and what the launches will show ÷ the truth.
    known = np.sqrt(chdtri(spread.freedom, points) / spread.freedom)[:, None]
    shown = np.sqrt(chdtri(freedom, points) / freedom)[None, :]
    threshold = np.maximum(critical * shown / known, max(shared, math.log1p(margin) / error))

    def found(change: float) -> float:
        return float(ndtr(known * (change - threshold)).mean())

    low, high = 0.0, 1.0
    while found(high) < power:
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) >= power else (middle, high)
    return high * error
