"""Difference of two sides within nodes: each node's new launches against its own old ones, by least squares.

log value of a launch = side + node + launch, both fixed: what nodes differ by takes no part, however large it is and
wherever a side was launched more often. Launches on a node that only one side used show how much launches vary.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, kw_only=True)
class NodeDifference:
    """New over old as a logarithm, and by what its interval is made."""

    effect: float
    deviation: float
    """Standard deviation between launches."""
    freedom: int
    launches: float
    """The effect's standard error, in deviations."""


def within_nodes(
    old: Sequence[float], new: Sequence[float], old_nodes: Sequence[str], new_nodes: Sequence[str]
) -> NodeDifference | None:
    """The difference of positive values, each with its launch's node.

    None where there is one node, where the sides share none, and where the launches leave nothing to know noise by.
    """
    cells: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for side, (values, nodes) in enumerate(((old, old_nodes), (new, new_nodes))):
        for value, node in zip(values, nodes, strict=True):
            cells[node][side].append(math.log(value))
    # 1 ÷ the variance of a node's own difference, in launches' variances.
    weights = {node: len(own[0]) * len(own[1]) / (len(own[0]) + len(own[1])) for node, own in cells.items()}
    weight = sum(weights.values())
    freedom = len(old) + len(new) - len(cells) - 1
    if len(cells) < 2 or not weight or freedom < 1:
        return None
    effect = sum(weights[node] * (fmean(own[1]) - fmean(own[0])) for node, own in cells.items() if all(own)) / weight
    alike = {node: [*own[0], *(value - effect for value in own[1])] for node, own in cells.items()}
    squares = sum((value - fmean(values)) ** 2 for values in alike.values() for value in values)
    return NodeDifference(
        effect=effect, deviation=math.sqrt(squares / freedom), freedom=freedom, launches=math.sqrt(1 / weight)
    )


def by_node(values: Sequence[float], nodes: Sequence[str]) -> list[list[float]]:
    """A side's values in groups of one node each."""
    groups: dict[str, list[float]] = defaultdict(list)
    for value, node in zip(values, nodes, strict=True):
        groups[node].append(value)
    return list(groups.values())
