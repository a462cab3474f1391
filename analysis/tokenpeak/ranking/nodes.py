"""Nodes of a sweep: what they differ by, differences within them, and whether a config gains alike on each.

Node effects: each launch's log value is its config's, its node's and noise; how much nodes differ beside noise is not
known, so it is averaged over ratios of the two standard deviations by how well each explains the launches.

Node agreement: both launches of a difference are of the same node, so a slow board takes no part in it. The spread is
that between launches of one config on one node, pooled over all of them. A node gains otherwise when its gain is
further from that of the other nodes together (weighted by launches) than Student's t allows, with Bonferroni's share of
the false alarms for each node. The furthest is left out before the next is looked at, as it would make usual ones look
unusual; of two that disagree nobody can say which is unusual, so both are named. Without a config that a node launched
twice no spread is known, and no node is named. Pure.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Generic, TypeVar

from tokenpeak.ranking.intervals import CONFIDENCE, ROUNDING, t_critical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


Config = TypeVar("Config", bound=Hashable)

RATIOS = 64
"""Equally likely ratios of the standard deviations that stand for all."""
NODES_DIFFER = 0.03
"""Standard deviation (log) between nodes that is usual at most: in noisier launches the scale of the ratio is less."""
LEAST_WEIGHT = 1e-9
"""Ratios that weigh less than this share of the weightiest count for nothing."""
LEAST_SQUARES = 1e-24
"""Launches without any spread are as if rounding were their spread."""
PRECISION = 1e-6
"""Of an interval's half width, as a share of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeEffects(Generic[Config]):
    """Effects of several nodes, by the launches of configs; `n` ratios of node ÷ launch have the `weights` (n,).

    Values are logarithms. Directions are those of the nodes' information matrix: along them effects are independent.
    """

    effects: dict[str, float]
    """Node → its effect, over the mean of all nodes."""
    means: dict[Config, float]
    """Config → its value on the mean of all nodes."""
    freedom: int
    """Launches beyond the first of each config."""
    weights: "Floats"
    deviations: "Floats"
    """(n,): standard deviation between launches on one node."""
    variances: "Floats"
    """(n, directions): variance of the nodes' effects along each direction, in variances of a launch."""
    along: "Floats"
    """(n, directions): the nodes' effects."""
    shares: dict[Config, "Floats"]
    """Config → (directions,): its launches' nodes over the mean of all nodes."""
    launches: dict[Config, int]
    """Config → how many launches."""

    def half_width(self, config: Config, others: Sequence[Config] = (), *, confidence: float = CONFIDENCE) -> float:
        """Half of the interval of a config's value, or of its difference from the mean of the launches of `others`."""
        import numpy as np
        from scipy.special import stdtr

        total = sum(self.launches[other] for other in others)
        share = self.shares[config] - sum(self.shares[other] * (self.launches[other] / total) for other in others)
        own = 1 / self.launches[config] + (1 / total if total else 0.0)
        centres = -(self.along @ share)
        away = np.abs(centres - self.weights @ centres)
        scales = self.deviations * np.sqrt(own + self.variances @ share**2)

        def beyond(half: float) -> float:
            """The probability outside of the interval."""
            tails = stdtr(self.freedom, (away - half) / scales) + stdtr(self.freedom, (-away - half) / scales)
            return float(self.weights @ tails)

        low, high = 0.0, float((t_critical(self.freedom, confidence) * scales + away).max())
        while high - low > PRECISION * high:
            middle = (low + high) / 2
            low, high = (middle, high) if beyond(middle) > 1 - confidence else (low, middle)
        return high

    def error(self, config: Config, others: Sequence[Config], *, confidence: float = CONFIDENCE) -> float:
        """The standard error by which Student's t of `freedom` gives that half width."""
        return self.half_width(config, others, confidence=confidence) / t_critical(self.freedom, confidence)


def node_effects(launches: Sequence[tuple[str, Config, float]]) -> NodeEffects[Config] | None:
    """The effects that `launches` of one kind of hardware show: (node, config, log value).

    None where one node made all launches, and where no config was launched again: nothing can be estimated.
    """
    nodes = list(dict.fromkeys(node for node, _, _ in launches))
    configs = list(dict.fromkeys(config for _, config, _ in launches))
    freedom = len(launches) - len(configs)
    if len(nodes) < 2 or not freedom:
        return None
    import numpy as np

    node_of = np.array([nodes.index(node) for node, _, _ in launches])
    config_of = np.array([configs.index(config) for _, config, _ in launches])
    values = np.array([value for _, _, value in launches])
    counts = np.zeros((len(configs), len(nodes)))
    np.add.at(counts, (config_of, node_of), 1.0)
    made = counts.sum(axis=1)
    plain = np.bincount(config_of, values) / made
    within = values - plain[config_of]
    shares = counts / made[:, None]
    information, directions = np.linalg.eigh(np.diag(counts.sum(axis=0)) - counts.T @ shares)
    information = np.where(information > 1e-9 * len(launches), information, 0.0)
    score = directions.T @ np.bincount(node_of, within, len(nodes))
    ratios = np.tan((np.arange(RATIOS) + 0.5) * (math.pi / 2 / RATIOS)) ** 2
    variances = ratios[:, None] / (1 + ratios[:, None] * information)
    squares = np.maximum(within @ within - variances @ score**2, max(LEAST_SQUARES, 1e-12 * float(within @ within)))
    scale = np.minimum(1.0, NODES_DIFFER / np.sqrt(squares / freedom))
    prior = np.log(scale * (1 + ratios) / (scale**2 + ratios))
    likelihood = -0.5 * np.log1p(ratios[:, None] * information).sum(axis=1) - freedom / 2 * np.log(squares)
    weights = np.exp(prior + likelihood - (prior + likelihood).max())
    kept = weights > LEAST_WEIGHT
    weights, variances, squares = weights[kept] / weights[kept].sum(), variances[kept], squares[kept]
    along = variances * score
    rows = (shares - 1 / len(nodes)) @ directions
    effects = directions @ (weights @ along)
    return NodeEffects(
        effects=dict(zip(nodes, (effects - effects.mean()).tolist(), strict=True)),
        means=dict(zip(configs, (plain - rows @ (weights @ along)).tolist(), strict=True)),
        freedom=freedom,
        weights=weights,
        deviations=np.sqrt(squares / freedom),
        variances=variances,
        along=along,
        shares=dict(zip(configs, rows, strict=True)),
        launches=dict(zip(configs, map(int, made), strict=True)),
    )


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


@dataclass(frozen=True, kw_only=True)
class NodeGain:
    """Gain of a config over another on one node: 0.1 is a tenth more."""

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
    """Gains of `config` over `other` by node; `launches` are (node, config, value above 0), of one kind of hardware.

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
