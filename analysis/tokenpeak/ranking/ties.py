"""Winner and tie group: the configs that the launches cannot separate from the best, or that are as good in practice.

Launches are the unit. Configs are ranked by geometric mean; the spread between launches is pooled over all of them.
Where several nodes made them, means and standard errors are those of `node_effects`.
A single winner is named in two ways. It beats each other config by more than the margin and by Student's t at the
two-sided level: with two configs tied for best that is wrong as often as the level says, with more of them less often,
and whatever the rest is (Gutmann and Maymin, 1987). Or it stands out: the others are not distinguishable, it is
further from their common mean than chance allows for the best of so many, and it beats each of them by more than the
margin and by OUTLIER_GAP standard errors; many configs that are alike show more of the second best than its own few
launches do. With all configs alike, both together name one in 5% of sweeps over two and in 2% over ten; at worst, with
two tied for best and the rest just too near to be separated from them, in 16%. Otherwise the r-th is left out when it
is behind the first by more than the margin and than the studentized range of r means allows, and so is everything
ranked below it (Newman and Keuls's steps).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Literal

from tokenpeak.ranking.intervals import CONFIDENCE, ROUNDING, range_bound, range_critical, t_critical
from tokenpeak.ranking.nodes import NodeEffects
from tokenpeak.ranking.rank import effects_of, ranks
from tokenpeak.spec.sweep import MARGIN

OUTLIER_GAP = 1.25
"""Standard errors by which a config that stands out beats each other."""

WIDEST = math.log(2)
"""Half of the widest informative interval of a log value: one from half to double the value."""

StandardError = Callable[..., float | None]
"""Of the difference of a config's mean from that of the launches of others; None where nothing shows it."""

Standing = Literal["winner", "tied", "equal", "worse", "unknown"]
"""winner: the best, alone or first of its group. tied: not distinguishable from it. equal: worse with confidence, by
less than the margin. worse: left out. unknown: no launch was repeated, or so few that one may be anywhere from half to
double its value."""


@dataclass(frozen=True, kw_only=True)
class Standings:
    """One config among others. `ratio` is its mean over the best's."""

    config: str
    rank: int
    standing: Standing
    mean: float
    launches: int
    ratio: float
    is_near: bool
    """Its mean is within the margin of the best's."""
    apart: float | None
    """By how much (log) it has to be behind the best to be left out; None of the best, and where nothing shows it."""

    @property
    def in_group(self) -> bool:
        """Nothing shows that it is worse."""
        return self.standing != "worse"

    @property
    def may_be_recommended(self) -> bool:
        """It is the best or as good; where no launch was repeated, it is within the margin."""
        return self.is_near if self.standing == "unknown" else self.in_group


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """All configs, best first, and how much launches vary (standard deviation of log; None when that is not known).

    `spread` is that deviation as it was seen, also where it is too wide, or of too few launches, to decide anything.
    Both are of launches on whichever node.
    """

    standings: tuple[Standings, ...]
    without_rank: tuple[str, ...] = ()
    """Configs of which a launch achieved nothing."""
    noise: float | None
    spread: float | None
    freedom: int
    node_effects: NodeEffects[str] | None = None
    """None: one node made all launches, or nothing shows what nodes differ by."""

    def half_width(self, config: str, other: str | None = None) -> float | None:
        """Half of the 95% interval (log) of a config's mean, or of its difference from another's; None without one."""
        if self.noise is None:
            return None
        if self.node_effects is not None:
            return self.node_effects.half_width(config, [other] if other else [])
        launches = {standing.config: standing.launches for standing in self.standings}
        share = 1 / launches[config] + (1 / launches[other] if other else 0.0)
        return t_critical(self.freedom) * self.noise * math.sqrt(share)

    @property
    def ranked(self) -> tuple[str, ...]:
        """All configs with a rank, best first."""
        return tuple(standing.config for standing in self.standings)

    @property
    def group(self) -> tuple[str, ...]:
        """The winner group, best first."""
        return tuple(standing.config for standing in self.standings if standing.in_group)

    @property
    def winner(self) -> str | None:
        """The config that is better than all others beyond noise and margin; None when it is a tie."""
        return self.group[0] if len(self.group) == 1 else None


def winner_group(
    launches: Mapping[str, Sequence[float]],
    *,
    nodes: Mapping[str, Sequence[str]] | None = None,
    among: Collection[str] | None = None,
    higher_is_better: bool = True,
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
) -> Verdicts:
    """The standings of configs by their launches' values, one for each launch; those without a rank have none.

    `nodes` are those of the launches, in the same order, all of one kind of hardware; None: one node. Only those of
    `among` are ranked, None: all; the launches of the others show how much launches vary all the same.
    """
    sign = 1.0 if higher_is_better else -1.0
    effects = effects_of(launches, nodes)
    ranked = ranks(launches, effects=effects, higher_is_better=higher_is_better)
    known = [one.config for one in ranked if one.rank is not None]
    order = [config for config in known if among is None or config in among]
    logs = {config: [math.log(value) for value in launches[config]] for config in known}
    plain = {config: fmean(values) for config, values in logs.items()}
    means = plain if effects is None else effects.means
    freedom = sum(len(values) - 1 for values in logs.values())
    squares = sum((value - plain[config]) ** 2 for config, values in logs.items() for value in values)
    spread = math.sqrt(squares / freedom) if freedom else None
    noise = None if spread is None or t_critical(freedom, confidence) * spread > WIDEST else spread
    counts = {config: len(values) for config, values in logs.items()}
    critical = t_critical(freedom, confidence) if freedom else math.inf

    @cache
    def error(first: str, *others: str) -> float | None:
        """Standard error of the difference of a config's mean from that of the launches of others."""
        if noise is None:
            return None
        if effects is not None:
            return effects.error(first, others, confidence=confidence)
        return noise * math.sqrt(1 / counts[first] + 1 / sum(counts[other] for other in others))

    errors_ahead: float | None = None
    """By how many standard errors the best is alone ahead of each other; None: it is not."""
    if _beats_all(order, means, error, critical, margin):
        errors_ahead = critical
    elif _beats_all(order, means, error, OUTLIER_GAP, margin) and _stands_out(
        order, means, counts, error, freedom, confidence
    ):
        errors_ahead = OUTLIER_GAP
    standings: list[Standings] = []
    below_out = True
    for rank in range(len(order), 0, -1):
        config, best = order[rank - 1], order[0]
        behind = sign * (means[best] - means[config])
        apart = error(best, config)
        errors = 0.0 if apart is None else _range(_studentized(behind, apart), rank, freedom, confidence)
        is_behind = apart is not None and _studentized(behind, apart) > errors
        standing: Standing
        if rank == 1:
            standing = "winner"
        elif apart is None:
            standing = "unknown"
        elif errors_ahead is not None or (is_behind and behind > math.log1p(margin) and below_out):
            standing = "worse"
        else:
            standing = "equal" if is_behind else "tied"
        below_out = below_out and standing == "worse"
        ratio = means[config] - means[best]
        errors = errors / math.sqrt(2) if errors_ahead is None else errors_ahead
        standings.append(
            Standings(
                config=config,
                rank=rank,
                standing=standing,
                mean=math.exp(means[config]),
                launches=len(logs[config]),
                ratio=math.exp(ratio),
                is_near=abs(math.expm1(ratio)) <= margin,
                apart=None if rank == 1 or apart is None else max(math.log1p(margin), errors * apart),
            )
        )
    without_rank = tuple(one.config for one in ranked if one.rank is None and (among is None or one.config in among))
    return Verdicts(
        standings=tuple(reversed(standings)),
        without_rank=without_rank,
        noise=noise,
        spread=spread,
        freedom=freedom,
        node_effects=effects,
    )


def _beats_all(
    order: Sequence[str],
    means: Mapping[str, float],
    error: StandardError,
    critical: float,
    margin: float,
) -> bool:
    """Whether the first is ahead of each other by more than the margin and by `critical` standard errors."""
    best = order[0] if order else ""
    for config in order[1:]:
        apart = error(best, config)
        if apart is None or abs(means[best] - means[config]) <= max(math.log1p(margin), critical * apart):
            return False
    return len(order) > 1


def _stands_out(
    order: Sequence[str],
    means: Mapping[str, float],
    counts: Mapping[str, int],
    error: StandardError,
    freedom: int,
    confidence: float,
) -> bool:
    """Whether the others are alike, and the first is too far from their common mean to be the best of as many alike."""
    best, others = order[0], order[1:]
    if len(others) < 2 or (widest := error(others[0], others[-1])) is None:
        return False
    apart = _studentized(abs(means[others[0]] - means[others[-1]]), widest)
    if apart > _range(apart, len(others), freedom, confidence):
        return False
    launches = sum(counts[config] for config in others)
    common = sum(counts[config] * means[config] for config in others) / launches
    critical = t_critical(freedom, 1 - 2 * (1 - confidence) / len(order))
    return abs(means[best] - common) > critical * (error(best, *others) or 0.0)


def _studentized(difference: float, error: float) -> float:
    """A difference of means in the studentized range's unit; launches that all gave the same show any difference."""
    if difference < ROUNDING:
        return 0.0
    return difference * math.sqrt(2) / error if error > 0 else math.inf


def _range(studentized: float, means: int, freedom: int, confidence: float) -> float:
    """What a studentized range of `means` means has to be beyond; its bounds stand for it where they settle the case.

    The value itself takes long to compute; a range is beyond what is returned just where it is beyond that.
    """
    if studentized > (bound := range_bound(means, freedom, confidence)):
        return bound
    least = range_critical(min(means, 2), freedom, confidence)
    return range_critical(means, freedom, confidence) if studentized > least else least
