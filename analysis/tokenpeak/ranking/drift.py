"""Drift of a machine over a sweep, from launches of the same config.

A steady change shows as a line through the anchor's log values over time. A change that is no line (a jump, a
neighbour that comes and goes) shows as spread around it. Neither is removed from figures: they stay as measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from tokenpeak.ranking.intervals import CONFIDENCE, t_critical
from tokenpeak.spec.sweep import MARGIN

FEWEST_LAUNCHES = 3


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Drift by the anchor. `change` is last over first by the line, with bounds; `spread` is around the line (log).

    none: no change beyond noise, or less than the margin; the bounds say what they leave open.
    steady: a change along the line. erratic: the anchor varies by more than the margin around any line, so configs must
    be compared within blocks or not at all. unknown: too few launches of the anchor.
    """

    verdict: Literal["none", "steady", "erratic", "unknown"]
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    spread: float | None = None


def drift(anchor: Sequence[tuple[float, float]], *, margin: float = MARGIN, confidence: float = CONFIDENCE) -> Drift:
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
    )


def drift_words(
    launches: Sequence[tuple[str, str, float, float]], *, baseline: Sequence[str], margin: float
) -> list[str]:
    """Drift by each node's anchor, in a sentence; none of a node whose anchor has too few launches.

    `launches`: (node, config's name, seconds after the sweep's start, objective). The anchor is the first baseline that
    gave a result, else the config that was launched first: a config that was picked by what it gave, such as a
    finalist, would seem to fall.
    """
    sentences = []
    nodes = list(dict.fromkeys(node for node, *_ in launches))
    for node in nodes:
        own = sorted((at_s, name, value) for where, name, at_s, value in launches if where == node)
        names = [name for _, name, _ in own]
        anchor = next((name for name in baseline if name in names), names[0])
        values = [(at_s, value) for at_s, name, value in own if name == anchor]
        change = drift(values, margin=margin)
        where = f" on {node}" if len(nodes) > 1 else ""
        n = f"{_COUNTS.get(len(values), len(values))} launches"
        if change.verdict == "steady" and change.change and change.change_low and change.change_high:
            ends = f"{_percent(change.change_low)} to {_percent(change.change_high)}"
            sentences.append(
                f"Drift{where}: {_percent(change.change)} ({ends}), by {n} of {anchor}. Nothing is corrected for it."
            )
        elif change.verdict == "erratic" and change.spread is not None:
            sentences.append(f"Noise{where}: {n} of {anchor} vary by {change.spread:.1%}, more than the margin.")
        elif change.verdict == "none" and change.change_low is not None and change.change_high is not None:
            if 1 / (1 + margin) <= change.change_low and change.change_high <= 1 + margin:
                sentences.append(f"Drift{where}: none beyond {margin:.0%}, by {n} of {anchor}.")
            else:
                ends = f"{_percent(change.change_low)} and {_percent(change.change_high)}"
                sentences.append(f"Drift{where}: between {ends}; {n} are too few to narrow it.")
    return sentences


_COUNTS = {3: "three", 4: "four", 5: "five", 6: "six"}


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.0%}".replace("-", "−")
