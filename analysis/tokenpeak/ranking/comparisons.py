"""Comparisons of the candidates of one kind of hardware: leads, gains with bounds, and what sets one of a group apart.

A difference is shown where it is beyond the margin and beyond what the studentized range of all candidates allows, so
that the best of many alike is called ahead in 5% of sweeps at most. A loss on another workload or in latency counts
where it is beyond its margin and, where launches were repeated, beyond chance at 99%: there are several of them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tokenpeak.ranking.intervals import range_bound, range_critical, t_critical
from tokenpeak.ranking.ties import Verdicts, winner_group

Hold = Literal["no_limit", "held", "not_proven", "broken"]
"""Of the SLO: held with confidence, in the figures alone, or not in a launch; no_limit: nothing was limited."""
Answers = Literal["same", "passed", "not_compared", "failed", "another_model"]
"""same: the config computes as what runs now does, so its answers need no comparison."""
Merit = Literal["alone", "workloads", "latency", "settings"]
"""What set the config apart from the others of its group, the last of several."""

LATENCY_MARGIN = 0.05
"""Among configs of one group a latency that is higher by less is as good."""
LOSS_CONFIDENCE = 0.99
FEWEST_FURTHER_LAUNCHES, MOST_FURTHER_LAUNCHES = 2, 20


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One config, or a class of configs that cannot differ, with a value of the objective for each launch."""

    config: str
    launches: Sequence[float]
    nodes: Sequence[str] = ()
    """The node of each launch; empty: one node made all."""
    hold: Hold = "no_limit"
    excess: float | None = None
    """The worst measured value over its limit, in any launch; None: not measured."""
    answers: Answers = "same"
    workloads: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Values of the objective's metric under other loads, for each launch."""
    latency: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Values of each latency that is compared, in s, for each launch."""
    changes: int = 0
    """Settings that differ from what runs now."""
    is_current: bool = False
    """Whether it is what runs now, or the engine's defaults where that was not launched."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A config's mean over that of what runs now; bounds (95%) are None where no config was launched again."""

    config: str
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Faster:
    """A config that is better than the chosen one beyond the margin and may not be run."""

    config: str
    ratio: float | None
    """Its mean over the chosen one's; None where none was chosen."""
    hold: Hold
    answers: Answers


class Comparisons:
    """The candidates that were measured, and the comparisons between them."""

    def __init__(
        self, candidates: Sequence[Candidate], higher_is_better: bool, margin: float, confidence: float
    ) -> None:
        self.margin = margin
        self._of = {each.config: each for each in candidates}
        self._sign = 1.0 if higher_is_better else -1.0
        self._confidence = confidence

    def verdicts(self, among: Sequence[Candidate]) -> Verdicts:
        """The standings of these, with the noise that all launches show."""
        nodes = {config: each.nodes for config, each in self._of.items()}
        return winner_group(
            {config: each.launches for config, each in self._of.items()},
            nodes=nodes if all(nodes.values()) else None,
            among={each.config for each in among},
            higher_is_better=self._sign > 0,
            margin=self.margin,
            confidence=self._confidence,
        )

    def lead(self, verdicts: Verdicts, config: str, other: str) -> float:
        """By how much (log) a config is better than another."""
        means = {each.config: each.mean for each in verdicts.standings}
        return self._sign * math.log(means[config] / means[other])

    def is_ahead(self, verdicts: Verdicts, config: str, kept: str) -> bool:
        """Whether a config is ahead of what runs now by more than two alone would differ: too little among several.

        Where no config was launched again, any lead beyond the margin is.
        """
        half = verdicts.half_width(config, kept)
        least = half if half is not None else 0.0 if verdicts.freedom == 0 else math.inf
        return self.lead(verdicts, config, kept) > max(math.log1p(self.margin), least)

    def is_shown(self, verdicts: Verdicts, config: str, kept: str) -> bool:
        """Whether a config of the group is shown to be ahead of what runs now."""
        if verdicts.noise is None or kept in verdicts.group:
            return False
        if config == verdicts.ranked[0]:
            return True
        width = self._width(verdicts, config, kept)
        return width is not None and self.lead(verdicts, config, kept) > max(math.log1p(self.margin), width)

    def gain(self, verdicts: Verdicts, config: str, kept: str) -> Gain:
        """A config's mean over that of what runs now, with an interval that allows for its having been chosen."""
        rivals = {each.config for each in verdicts.standings if each.may_be_recommended} - {kept}
        error = _error(verdicts, config, kept)
        ratio = self._sign * self.lead(verdicts, config, kept)
        if error is None:
            return Gain(config=config, ratio=math.exp(ratio), low=None, high=None)
        # All rivals of its group might have come first (Bonferroni).
        width = t_critical(verdicts.freedom, 1 - (1 - self._confidence) / max(1, len(rivals))) * error
        return Gain(config=config, ratio=math.exp(ratio), low=math.exp(ratio - width), high=math.exp(ratio + width))

    def distinguishable(self, verdicts: Verdicts, config: str, other: str) -> float | None:
        """The smallest difference (share) between two configs that is shown in 95% of cases; None: not known."""
        width, error = self._width(verdicts, config, other), _error(verdicts, config, other)
        if width is None or error is None:
            return None
        return math.expm1(max(math.log1p(self.margin), width) + _reached(verdicts.freedom) * error)

    def further_launches(self, verdicts: Verdicts, config: str, kept: str) -> int | None:
        """The launches of each of the two that would show the lead in 95% of cases, if it is as measured."""
        lead, counts = self.lead(verdicts, config, kept), {each.config: each.launches for each in verdicts.standings}
        if lead <= math.log1p(self.margin):
            return None
        if verdicts.noise is None:
            return FEWEST_FURTHER_LAUNCHES
        for further in range(1, MOST_FURTHER_LAUNCHES + 1):
            freedom = verdicts.freedom + 2 * further
            error = verdicts.noise * math.sqrt(1 / (counts[config] + further) + 1 / (counts[kept] + further))
            width = range_bound(len(counts), freedom, self._confidence) / math.sqrt(2) * error
            if lead > max(math.log1p(self.margin), width) + _reached(freedom) * error:
                return further
        return None

    def faster(self, everyone: Verdicts, allowed: Collection[str], config: str | None) -> tuple[Faster, ...]:
        """The candidates that may not be run and are better than the chosen one by more than the margin, best first."""
        means = {each.config: each.mean for each in everyone.standings}
        leads = {
            each: self._sign * math.log(means[each] / means[config]) if config else None
            for each in means
            if each not in allowed
        }
        beyond = [each for each, lead in leads.items() if lead is None or lead > math.log1p(self.margin)]
        return tuple(
            Faster(
                config=each,
                ratio=None if config is None else means[each] / means[config],
                hold=self._of[each].hold,
                answers=self._of[each].answers,
            )
            for each in sorted(beyond, key=lambda each: -self._sign * means[each])
        )

    def choice(self, verdicts: Verdicts, group: Sequence[str]) -> tuple[str, Merit, list[str]]:
        """One of a group that is alike in the objective, what set it apart, and the others that launches show worse."""
        left, lost = list(group), list[str]()
        merit: Merit = "alone"
        steps: tuple[tuple[Merit, float, float], ...] = (
            ("workloads", self._sign, self.margin),
            ("latency", -1.0, LATENCY_MARGIN),
        )
        for step, sign, margin in steps:
            losses = self._losses(step, left, sign, margin)
            least = min(loss for loss, _ in losses.values())
            if any(loss > least for loss, _ in losses.values()):
                merit = step
                lost += [config for config in left if losses[config][0] > least and losses[config][1]]
                left = [config for config in left if losses[config][0] <= least]
            # Of configs that tie, one that measured lower by more than the margin is likely worse.
            left = [config for config in left if self.lead(verdicts, left[0], config) <= math.log1p(self.margin)]
        if len(left) > 1:
            merit, fewest = "settings", min(self._of[config].changes for config in left)
            left = [config for config in left if self._of[config].changes == fewest]
        return left[0], merit, lost

    def _losses(self, step: Merit, left: Sequence[str], sign: float, margin: float) -> dict[str, tuple[float, bool]]:
        """Each config's largest loss (log) to the best of the group under one load, and whether launches show it.

        0: none that counts. Loads that were not measured of all of them do not.
        """
        values = {config: getattr(each, step) for config, each in self._of.items()}
        shared = [name for name in values[left[0]] if all(min(values[each].get(name) or [0]) > 0 for each in left)]
        worst = dict.fromkeys(left, (0.0, False))
        for name in shared:
            verdicts = winner_group(
                {config: own[name] for config, own in values.items() if min(own.get(name) or [0]) > 0},
                among=left,
                higher_is_better=sign > 0,
                margin=margin,
                confidence=1 - (1 - LOSS_CONFIDENCE) / len(shared),
            )
            for each in verdicts.standings:
                is_lost = each.standing == "worse" or (verdicts.freedom == 0 and not each.is_near)
                loss = abs(math.log(each.ratio)) if is_lost else 0.0
                if loss > worst[each.config][0]:
                    worst[each.config] = loss, each.standing == "worse"
        return worst

    def _width(self, verdicts: Verdicts, config: str, other: str) -> float | None:
        """Half of the interval (log) of a difference, as wide as the choice among all candidates asks for."""
        error = _error(verdicts, config, other)
        if error is None:
            return None
        means = max(2, len(verdicts.standings))
        return range_critical(means, verdicts.freedom, self._confidence) / math.sqrt(2) * error


def _error(verdicts: Verdicts, config: str, other: str) -> float | None:
    """The standard error (log) of a difference; None where no config was launched again."""
    half = verdicts.half_width(config, other)
    return None if half is None else half / t_critical(verdicts.freedom)


def _reached(freedom: int) -> float:
    """The standard errors by which a difference has to be larger than a threshold to pass it in 95% of cases.

    Student's t at 99%: sweeps whose launches happen to vary little say that they show small differences.
    """
    return t_critical(freedom, 0.98)
