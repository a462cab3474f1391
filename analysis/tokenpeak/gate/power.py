"""Power of a gate, stated before it runs: the smallest regression that so many launches find, and what they cost."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tokenpeak.gate.comparison import is_wanted
from tokenpeak.gate.side import Load, Side, SideConfig
from tokenpeak.metrics import title_of
from tokenpeak.ranking.intervals import CONFIDENCE, Spread, spreads
from tokenpeak.ranking.nodes import by_node
from tokenpeak.ranking.objective import metric_direction
from tokenpeak.ranking.upgrade import FEWEST_LAUNCHES, POWER, smallest_change
from tokenpeak.search.remaining import duration_text

MOST_LAUNCHES = 60
"""No night has more of one config."""
SHOWN = (2, 3, 4, 5, 6, 8, 10)
LARGEST_SHARE = 10.0
"""A regression that is larger is none that anybody waits for."""


@dataclass(frozen=True, kw_only=True)
class PowerFigure:
    """One figure under one load on one kind of hardware, and its config that varies most."""

    hardware: str
    load: Load
    metric: str
    spread: Spread | None
    """None: no config was launched twice."""
    launches: int
    """Of the config of which the old side has fewest."""
    nodes: int
    """Of the config that was launched on most."""


@dataclass(frozen=True, kw_only=True)
class Power:
    """Power of a gate against a side."""

    figures: tuple[PowerFigure, ...]
    comparisons: int
    configs: int
    margin: float
    launch_s: float | None
    """How long one launch of every config takes on the old side's nodes at once; None: an import does not say."""

    def smallest(self, figure: PowerFigure, launches: int, *, both: bool = False) -> float | None:
        """The smallest regression (a share) that so many new launches of each config find in 95%; None: none.

        `both`: the old side is launched as often, instead of as it was.
        """
        if figure.spread is None:
            return None
        old = launches if both else figure.launches
        change = smallest_change(
            figure.spread, old, launches, comparisons=self.comparisons, nodes=figure.nodes, margin=self.margin
        )
        return None if change is None else as_share(change, figure.metric)

    def needed(self, regression: float, *, both: bool = False) -> int | None:
        """The fewest launches of each config that find this regression in every figure; None: no number does."""
        enough = range(FEWEST_LAUNCHES, MOST_LAUNCHES + 1)
        first = bisect_left(enough, True, key=lambda launches: self._finds(regression, launches, both=both))
        return enough[first] if first < len(enough) else None

    def _finds(self, regression: float, launches: int, *, both: bool) -> bool:
        sizes = (self.smallest(figure, launches, both=both) for figure in self.figures)
        return all(smallest is not None and smallest <= regression for smallest in sizes)

    def affordable(self, seconds: float) -> int | None:
        """How many launches of each config the time allows; None where that is not known."""
        return None if self.launch_s is None else int(seconds // self.launch_s)


def as_share(change: float, metric: str) -> float:
    """A change of the log value for the worse, as a share: 0.05 is 5% less throughput, or 5% more latency."""
    return -math.expm1(-change) if metric_direction(metric) == "higher" else math.expm1(change)


def power_against(old: Side, *, margin: float, metrics: Sequence[str] = (), configs: Sequence[str] = ()) -> Power:
    """Power of a gate of the same configs, loads and figures against this side."""
    wanted = [config for config in old.launched if is_wanted(config, configs)]
    figures = list(_figures(old.launched, wanted, metrics))
    return Power(
        figures=tuple(figures),
        comparisons=sum(
            len(config.values(load, metric).measured) >= FEWEST_LAUNCHES
            for config in wanted
            for load in config.loads
            for metric in metrics or load.figures
        ),
        configs=len(wanted),
        margin=margin,
        launch_s=_launch_s(old, wanted),
    )


def _figures(
    configs: Sequence[SideConfig], wanted: Sequence[SideConfig], metrics: Sequence[str]
) -> Iterator[PowerFigure]:
    """Each figure of the wanted configs; how much these vary is learned from all configs."""
    places = dict.fromkeys((config.hardware, load) for config in wanted for load in config.loads)
    for hardware, load in places:
        here = [config for config in configs if config.hardware == hardware]
        own = {config.config_id for config in wanted if config.hardware == hardware}
        for metric in metrics or load.figures:
            values = {config.config_id: config.values(load, metric) for config in here}
            groups = {config: by_node(own.measured, own.nodes) for config, own in values.items() if own.measured}
            if not own & groups.keys():
                continue
            own_spreads = [spread for config, spread in spreads(groups).items() if config in own]
            counts = [len(values[config].measured) for config in own & groups.keys()]
            yield PowerFigure(
                hardware=hardware,
                load=load,
                metric=metric,
                spread=max(own_spreads, key=lambda spread: spread.deviation, default=None),
                launches=min((count for count in counts if count >= FEWEST_LAUNCHES), default=1),
                nodes=max(len(groups[config]) for config in own & groups.keys()),
            )


def _launch_s(old: Side, configs: Sequence[SideConfig]) -> float | None:
    """Kinds of hardware work at the same time, as the nodes of a kind do."""
    if not all(config.duration_s for config in configs):
        return None
    hardware = dict.fromkeys(config.hardware for config in configs)
    return max(
        sum(fmean(config.duration_s) for config in configs if config.hardware == kind)
        / max(len({launch.node for config in configs if config.hardware == kind for launch in config.launches}), 1)
        for kind in hardware
    )


def power_lines(power: Power, old: Side, *, regression: float, hours: float | None) -> Iterator[str]:
    """Power of a gate against a side by the number of launches, and the launches that a regression takes."""
    yield f"old  {old.title}"
    configs = f"{power.configs} config{'' if power.configs == 1 else 's'}"
    yield (
        f"{power.comparisons} comparisons of {configs}; false alarms at most {1 - CONFIDENCE:.0%} over all of them "
        f"together; changes below {power.margin:.0%} are ties"
    )
    yield f"Smallest regression found in {POWER:.0%}, of the config that varies most, by new launches of each config:"
    for figure in power.figures:
        launches = f"{figure.launches} launch{'' if figure.launches == 1 else 'es'}"
        yield f"  {_place(power, figure)}: {title_of(figure.metric)} (old: {launches})"
        yield "    " + "  ".join(f"n={n}: {_size(power.smallest(figure, n), figure)}" for n in SHOWN)
    if power.launch_s is not None:
        yield f"One launch of every config takes {duration_text(power.launch_s)} on the nodes that old ran on."
    yield from _needed_lines(power, regression, hours)


def _place(power: Power, figure: PowerFigure) -> str:
    several = len({each.hardware for each in power.figures}) > 1
    load = f"{figure.load.workload} {figure.load.level}"
    return f"{figure.hardware} · {load}" if several else load


def _size(share: float | None, figure: PowerFigure) -> str:
    if share is None:
        return "not known" if figure.spread is None else "none"
    if share >= LARGEST_SHARE:
        return "none"
    return f"{share:.1%}" if share < 1 else f"{share + 1:.1f}-fold"


def _needed_lines(power: Power, regression: float, hours: float | None) -> Iterator[str]:
    """How many launches find the regression, and whether they are affordable."""
    aim = f"To find a regression of {regression:.1%} in every figure"
    if any(figure.spread is None for figure in power.figures) or not power.figures:
        yield f"{aim}: not known, because old launched no config twice. Launch it again with search.replicates: 3."
        return
    needed, both = power.needed(regression), False
    if needed is None:
        needed, both = power.needed(regression, both=True), True
    if needed is None:
        yield f"{aim}: not affordable, no number of launches does. Choose fewer configs, figures, or a larger one."
        return
    where = f"{needed} launches of each config, of old as well" if both else f"{needed} new launches of each config"
    cost_s = None if power.launch_s is None else power.launch_s * needed * (2 if both else 1)
    yield f"{aim}: {where}" + (f", {duration_text(cost_s)}." if cost_s is not None else ".")
    if hours is None or cost_s is None or cost_s <= hours * 3600:
        return
    there = (power.affordable(hours * 3600) or 0) // (2 if both else 1)
    sizes = [(power.smallest(figure, there, both=both), figure) for figure in power.figures]
    worst, figure = max(sizes, key=lambda each: float("inf") if each[0] is None else each[0])
    finds = "nothing" if worst is None else _size(worst, figure)
    yield (
        f"Not affordable in {duration_text(hours * 3600)}: {there} launches of each config are affordable, "
        f"which find {finds}. "
        "Choose fewer configs (--config) or figures (--metric), or more nodes."
    )


def power_json(power: Power, old: Side, *, regression: float, hours: float | None) -> dict[str, Any]:
    """Power of a gate against a side, as JSON."""
    needed, both = power.needed(regression), power.needed(regression, both=True)
    affordable = None if hours is None else power.affordable(hours * 3600)
    return {
        "old": list(old.sweep_ids),
        "comparisons": power.comparisons,
        "margin": power.margin,
        "launch_s": power.launch_s,
        "regression": regression,
        "launches_needed": needed,
        "launches_needed_of_both": both,
        "launches_affordable": affordable,
        "is_affordable": None if affordable is None else needed is not None and needed <= affordable,
        "figures": [
            {
                "hardware": figure.hardware,
                "workload": figure.load.workload,
                "level": figure.load.level,
                "metric": figure.metric,
                "old_launches": figure.launches,
                "deviation": figure.spread.deviation if figure.spread else None,
                "smallest": {str(n): power.smallest(figure, n) for n in SHOWN},
            }
            for figure in power.figures
        ],
    }
