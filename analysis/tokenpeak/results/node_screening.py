"""Node screening: which nodes of a group are slow or throttle, by launches of one config on each of them, and why.

A node is an outlier when its speed is apart from the
others', when it falls during the run as the others' does not, or when its driver says that it holds the clock back and
the others' do not. The first two are tests that share the false alarms of the group; the last is what the driver says.
The cause is what the node's facts and telemetry show otherwise than on the usual nodes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from tokenpeak.ranking.intervals import t_critical
from tokenpeak.ranking.node_outliers import NodeOutliers, node_outliers
from tokenpeak.records import NodeFacts, TrialRecord
from tokenpeak.results.node_differences import differences, mean_known
from tokenpeak.results.node_launch import NodeLaunch, launch_of
from tokenpeak.results.verdict import SLOWED_SHARE_LIMIT
from tokenpeak.spec.sweep import SweepSpec

SPEED_ALARMS, FALL_ALARMS = 0.04, 0.01
"""Probability that any node of a group of usual ones is apart by either test, 5% together. A fall during a run is clear
where there is one: many windows show it."""
FALL_APART = 0.02
"""By so much a node's speed must fall more than the others' for it to be said."""

NodeVerdict = Literal["usual", "slow", "throttles", "fast", "undecided", "no figure"]


@dataclass(frozen=True, kw_only=True)
class ScreenedNode:
    """A node of the group: its figures as means over its launches, and the verdict."""

    node: str
    verdict: NodeVerdict
    launches: int
    speed: float | None
    """Geometric mean."""
    ratio: float | None
    """Its speed ÷ the median of the usual nodes."""
    low: float | None
    high: float | None
    """95% interval of the ratio; None where nothing shows how much a node varies."""
    fall: float | None
    """Share of its speed that it lost during the run."""
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    slowed: float | None
    power_limit_w: float | None
    causes: tuple[str, ...]
    """What differs from the usual nodes, in words."""

    @property
    def is_outlier(self) -> bool:
        """Whether figures of this node would be worse than its config's are."""
        return self.verdict in ("slow", "throttles")

    @property
    def sentence(self) -> str:
        """The verdict with its figure and its cause, such as `node 17 is 9.1% slow: power limit 400 W, …`."""
        because = "; ".join(self.causes) or "nothing that was recorded shows why"
        if self.verdict == "no figure":
            return f"{self.node} gave no figure: {because}"
        if self.ratio is None:
            return f"{self.node}: {because}"
        away = f"{abs(1 - self.ratio):.1%} {'slow' if self.ratio < 1 else 'fast'}"
        if self.verdict == "throttles":
            return f"{self.node} throttles and is {away}: {because}"
        return f"{self.node} is {away}: {because}"


@dataclass(frozen=True, kw_only=True)
class NodeScreening:
    """The nodes of a group with their verdicts, and what such a group can show."""

    nodes: tuple[ScreenedNode, ...]
    detectable: float | None
    """How slow a node must be to be named, as a share; None: no speed would do."""

    @property
    def outliers(self) -> tuple[ScreenedNode, ...]:
        """The slow nodes and those that throttle."""
        return tuple(node for node in self.nodes if node.is_outlier)

    @property
    def power_words(self) -> str:
        """What the group can show, in a sentence."""
        measured = [node for node in self.nodes if node.speed is not None]
        launches = max((node.launches for node in measured), default=0)
        of = f"{len(measured)} nodes with {launches} launch{'' if launches == 1 else 'es'} each"
        if len(measured) < 2:
            return "Fewer than two nodes gave a figure, so nothing can be compared."
        if len(measured) == 2:
            return "Of two nodes, nobody can say which one is unusual: only what the driver says names one."
        if self.detectable is None or self.detectable >= 0.5:
            return f"{of} show no slow node, however slow: launch more often."
        return f"{of} show a node that is {self.detectable:.1%} slow or more."

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each node that is not usual, and what the group can show."""
        return (*(node.sentence for node in self.nodes if node.verdict != "usual"), self.power_words)


def screening_of(trials: Iterable[TrialRecord], facts: Iterable[NodeFacts], spec: SweepSpec) -> NodeScreening:
    """The verdicts on one group's nodes by its trials of the screening; interrupted ones showed nothing."""
    launches = [launch_of(trial, spec) for trial in trials if trial.status != "interrupted"]
    limits = {node.node: _power_limit_w(node) for node in facts}
    return screen(launches, limits, margin=spec.search.margin)


def screen(
    launches: Sequence[NodeLaunch], power_limits_w: Mapping[str, float | None], *, margin: float
) -> NodeScreening:
    """The verdict on each node of a group; nodes within `margin` of the others are as fast."""
    by_node: dict[str, list[NodeLaunch]] = {}
    for launch in sorted(launches, key=lambda launch: launch.node):
        by_node.setdefault(launch.node, []).append(launch)
    speeds = {node: [math.log(each.speed) for each in own if each.speed] for node, own in by_node.items()}
    falls = {node: [each.fall for each in own if each.fall is not None] for node, own in by_node.items()}
    log_margin = -math.log1p(-margin)
    by_fall = node_outliers(falls, margin=log_margin, false_alarms=FALL_ALARMS)
    slowed = {node: mean_known([each.slowed for each in own]) or 0.0 for node, own in by_node.items()}
    held_back = {node for node, share in slowed.items() if share > SLOWED_SHARE_LIMIT}
    # Where most boards are held back, the load does it, not the node.
    throttling = set(by_fall.low) | (held_back if len(held_back) <= len(by_node) / 2 else set())
    # A node that throttles has no one speed, and would hide others.
    by_speed = node_outliers(
        {node: values for node, values in speeds.items() if node not in throttling},
        margin=log_margin,
        false_alarms=SPEED_ALARMS,
    )
    differ = len(by_node) == 2 and not throttling and _differ(speeds, by_speed, log_margin)
    verdicts: dict[str, NodeVerdict] = {}
    for node in by_node:
        if not speeds[node]:
            verdicts[node] = "no figure"
        elif node in throttling:
            verdicts[node] = "throttles"
        elif node in by_speed.low:
            verdicts[node] = "slow"
        elif node in by_speed.high:
            verdicts[node] = "fast"
        else:
            verdicts[node] = "undecided" if differ else "usual"
    usual = {node: by_node[node] for node, verdict in verdicts.items() if verdict in ("usual", "undecided")}
    nodes = tuple(
        _node(node, own, verdicts[node], by_speed, falls[node], power_limits_w, usual) for node, own in by_node.items()
    )
    detectable = by_speed.detectable
    return NodeScreening(nodes=nodes, detectable=None if detectable is None else 1 - math.exp(-detectable))


def _differ(speeds: Mapping[str, Sequence[float]], found: NodeOutliers, log_margin: float) -> bool:
    """Whether two nodes differ by more than the margin and their launches do."""
    if found.deviation is None or not all(speeds.values()) or found.freedom < 1 or min(map(len, speeds.values())) < 2:
        return False
    first, second = (fmean(values) for values in speeds.values())
    return abs(first - second) > log_margin + t_critical(found.freedom) * found.deviation * math.sqrt(2)


def _node(
    node: str,
    own: Sequence[NodeLaunch],
    verdict: NodeVerdict,
    by_speed: NodeOutliers,
    falls: Sequence[float],
    power_limits_w: Mapping[str, float | None],
    usual: Mapping[str, Sequence[NodeLaunch]],
) -> ScreenedNode:
    speeds = [math.log(launch.speed) for launch in own if launch.speed]
    away = fmean(speeds) - by_speed.centre if speeds else None
    half = None
    if by_speed.deviation is not None and by_speed.freedom >= 1:
        half = t_critical(by_speed.freedom) * by_speed.deviation
    others = [launch for other, launches in usual.items() if other != node for launch in launches]
    limits = [power_limits_w.get(other) for other in usual if other != node]
    fall = 1 - math.exp(fmean(falls)) if falls else None
    causes: tuple[str, ...] = ()
    if verdict == "no figure":
        causes = tuple(dict.fromkeys(each.failure for each in own if each.failure))
    elif verdict != "usual":
        lost = [each.fall for each in others if each.fall is not None]
        usual_fall = 1 - math.exp(median(lost)) if lost else None
        if verdict == "throttles" and fall is not None and usual_fall is not None and fall - usual_fall > FALL_APART:
            causes = (f"its speed falls by {fall:.0%} during the run, by {max(0.0, usual_fall):.0%} on the others",)
        causes += differences(own, power_limits_w.get(node), others, limits)
    return ScreenedNode(
        node=node,
        verdict=verdict,
        launches=len(speeds),
        speed=math.exp(fmean(speeds)) if speeds else None,
        ratio=math.exp(away) if away is not None else None,
        low=math.exp(away - half) if away is not None and half is not None else None,
        high=math.exp(away + half) if away is not None and half is not None else None,
        fall=fall,
        clock_mhz=mean_known([each.clock_mhz for each in own]),
        power_w=mean_known([each.power_w for each in own]),
        temperature_c=mean_known([each.temperature_c for each in own]),
        slowed=mean_known([each.slowed for each in own]),
        power_limit_w=power_limits_w.get(node),
        causes=causes,
    )


def _power_limit_w(node: NodeFacts) -> float | None:
    """The lowest of its boards'."""
    return min((gpu.power_limit_w for gpu in node.gpus if gpu.power_limit_w is not None), default=None)
