"""Node agreement: what one config gains over another on each node that launched both, and which node gains otherwise.

Both launches of a difference are of the same node, so a slow board takes no part in it. The spread is that between
launches of one config on one node, pooled over all of them. A node gains otherwise when its gain is further from that
of the other nodes together (weighted by launches) than Student's t allows, with Bonferroni's share of the false alarms
for each node. The furthest is left out before the next is looked at, as it would make usual ones look unusual; of two
that disagree nobody can say which is unusual, so both are named. Without a config that a node launched twice no spread
is known, and no node is named. Pure.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.ranking.intervals import CONFIDENCE, t_critical
from tokenpeak.ranking.ties import ROUNDING


@dataclass(frozen=True, kw_only=True)
class NodeGain:
    """What a config gains over another on one node: 0.1 is a tenth more."""

    node: str
    gain: float
    is_apart: bool
    """It is not the gain of the other nodes, beyond the spread between launches."""


@dataclass(frozen=True, kw_only=True)
class NodeAgreement:
    """On which nodes a config was launched, and what it gains on each that launched the other as well."""

    nodes: tuple[str, ...]
    gains: tuple[NodeGain, ...]
    spread: float | None
    """Standard deviation of log between launches of one config on one node; None: none was launched there twice."""

    @property
    def apart(self) -> tuple[NodeGain, ...]:
        """The nodes that gain otherwise."""
        return tuple(each for each in self.gains if each.is_apart)


def node_agreement(
    launches: Iterable[tuple[str, str, float]], config: str, other: str | None, *, confidence: float = CONFIDENCE
) -> NodeAgreement:
    """What `config` gains over `other` by node; `launches` are (node, config, value above 0), of one kind of hardware.

    Without `other` only the nodes are known. `1 - confidence` is the probability that any node is named where all
    of them gain alike.
    """
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for node, name, value in launches:
        cells[node, name].append(math.log(value))
    freedom = sum(len(values) - 1 for values in cells.values())
    squares = sum((value - fmean(values)) ** 2 for values in cells.values() for value in values)
    spread = math.sqrt(squares / freedom) if freedom else None
    nodes = sorted({node for node, name in cells if name == config})
    both = [node for node in nodes if other is not None and (node, other) in cells]
    pairs = {node: (cells[node, config], cells[node, str(other)]) for node in both}
    gains = {node: fmean(own) - fmean(others) for node, (own, others) in pairs.items()}
    # In launches' variances: 1 for one launch.
    variances = {node: 1 / len(own) + 1 / len(others) for node, (own, others) in pairs.items()}
    apart: set[str] = set()
    if spread is not None and len(both) > 1:
        critical = t_critical(freedom, 1 - (1 - confidence) / len(both))
        apart = _apart(gains, variances, critical * spread)
    return NodeAgreement(
        nodes=tuple(nodes),
        gains=tuple(NodeGain(node=node, gain=math.expm1(gains[node]), is_apart=node in apart) for node in both),
        spread=spread,
    )


def _apart(gains: Mapping[str, float], variances: Mapping[str, float], most: float) -> set[str]:
    """The nodes whose gain (log) is further from that of the others than `most`, for a difference of variance 1."""
    left = dict(gains)
    while len(left) > 1:
        furthest = max(left, key=lambda node: _distance(node, left, variances))
        if _distance(furthest, left, variances) <= max(most, ROUNDING):
            break
        if len(left) == 2:
            return {*gains}
        del left[furthest]
    return {*gains} - {*left}


def _distance(node: str, gains: Mapping[str, float], variances: Mapping[str, float]) -> float:
    """How far a node's gain is from that of the others together, as a difference of variance 1."""
    weights = {other: 1 / variances[other] for other in gains if other != node}
    weight = sum(weights.values())
    common = sum(gains[other] * each for other, each in weights.items()) / weight
    return abs(gains[node] - common) / math.sqrt(variances[node] + 1 / weight)
