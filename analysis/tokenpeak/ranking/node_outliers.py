"""Node outliers: which nodes of a group are apart from the others in one figure of the same config.

Two tests, each of a group's whole false-alarm rate:

- Six nodes or more, or one launch of each: generalized extreme studentized deviate (Rosner, Technometrics 25 (1983)
  165), whose spread is that between the nodes. It is two-sided and removes the most extreme nodes one after the other,
  so that several outliers do not hide each other.
- Fewer nodes with several launches each: between so few nodes there is no spread to speak of, so the most extreme node
  is held against the others by the spread between launches of one node (Student's t, Bonferroni over the nodes), and
  must be apart by more than the margin with the test's confidence.

At most a fifth of a group, and always one node, can be apart: whoever is in the majority is what is usual. Of two
nodes nobody can say which one is unusual. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tokenpeak.ranking.intervals import t_critical, variance
from tokenpeak.spec.node_screening import FEW_NODES


@dataclass(frozen=True, kw_only=True)
class NodeOutliers:
    """The nodes that are apart, and what the group can show. Figures are logarithms, or other sums."""

    low: tuple[str, ...]
    """Nodes below the others, the most extreme first."""
    high: tuple[str, ...]
    """Nodes above them."""
    centre: float
    """The median of the other nodes."""
    deviation: float | None
    """By how much a usual node's mean varies, as a standard deviation; None where nothing shows it."""
    freedom: float
    detectable: float | None
    """How far apart a node must be to be named; None: no distance would do."""


def node_outliers(launches: Mapping[str, Sequence[float]], *, margin: float, false_alarms: float) -> NodeOutliers:
    """The nodes whose mean over their launches is apart from the others' by more than `margin`.

    `false_alarms` is the probability that any node of a group of usual ones is named, above and below together.
    """
    means = {node: fmean(values) for node, values in sorted(launches.items()) if values}
    if not means:
        return NodeOutliers(low=(), high=(), centre=0.0, deviation=None, freedom=0.0, detectable=None)
    freedom = sum(len(values) - 1 for values in launches.values() if values)
    deviation: float | None
    if len(means) < FEW_NODES and freedom:
        apart, deviation, detectable = _by_launches(launches, means, freedom, margin, false_alarms)
    else:
        apart, deviation, detectable = _by_nodes(means, margin, false_alarms)
        freedom = len(means) - len(apart) - 1
    centre = median(value for node, value in means.items() if node not in apart)
    return NodeOutliers(
        low=tuple(node for node in apart if means[node] < centre),
        high=tuple(node for node in apart if means[node] > centre),
        centre=centre,
        deviation=deviation,
        freedom=freedom,
        detectable=detectable,
    )


def most_apart(nodes: int) -> int:
    """How many of a group's nodes can be named."""
    return max(1, nodes // 5) if nodes > 2 else 0


def _by_nodes(
    means: Mapping[str, float], margin: float, false_alarms: float
) -> tuple[list[str], float | None, float | None]:
    """The nodes apart by the spread between nodes, that spread without them, and the distance that is named."""
    left, removed, found = dict(means), list[str](), 0
    for _ in range(most_apart(len(means))):
        middle = fmean(left.values())
        extreme = max(left, key=lambda node: abs(left[node] - middle))
        deviation = math.sqrt(variance(list(left.values())))
        critical = _deviate(len(left), false_alarms)
        distance = abs(left.pop(extreme) - middle)
        removed.append(extreme)
        if distance > critical * deviation and abs(means[extreme] - median(left.values())) > margin:
            found = len(removed)
    apart = removed[:found]
    usual = [value for node, value in means.items() if node not in apart]
    if len(usual) < 2 or not most_apart(len(means)):
        return apart, math.sqrt(variance(usual)) if len(usual) > 1 else None, None
    deviation = math.sqrt(variance(usual))
    # A node beside the usual ones is as far from their mean as Student's t of one more asks.
    away = t_critical(len(usual) - 1, 1 - false_alarms / (len(usual) + 1)) * deviation * math.sqrt(1 + 1 / len(usual))
    return apart, deviation, max(margin, away)


def _deviate(count: int, false_alarms: float) -> float:
    """Rosner's critical value of the extreme studentized deviate of so many nodes."""
    t = t_critical(count - 2, 1 - false_alarms / count)
    return (count - 1) * t / math.sqrt((count - 2 + t * t) * count)


def _by_launches(
    launches: Mapping[str, Sequence[float]],
    means: Mapping[str, float],
    freedom: int,
    margin: float,
    false_alarms: float,
) -> tuple[list[str], float, float | None]:
    """The same by the spread between launches; the others must agree among each other."""
    squares = sum(variance(values) * (len(values) - 1) for values in launches.values() if len(values) > 1)
    between = math.sqrt(squares / freedom)
    count = fmean(len(launches[node]) for node in means)
    deviation = between / math.sqrt(count)
    if not most_apart(len(means)):
        return [], deviation, None
    middle = median(means.values())
    extreme = max(means, key=lambda node: abs(means[node] - middle))
    others = {node: value for node, value in means.items() if node != extreme}
    error = between * math.sqrt(1 / len(launches[extreme]) + 1 / (len(others) * count))
    half = t_critical(freedom, 1 - false_alarms / len(means)) * error
    distance = abs(means[extreme] - fmean(others.values()))
    agree = max(others.values()) - min(others.values()) < distance / 2
    return [extreme] if agree and distance - half > margin else [], deviation, margin + half
