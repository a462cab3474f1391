"""Decision: which config to run, or why that is not known, from the launches of all candidates. Pure.

Candidates are those that hold the SLO with confidence, else those that hold it without, whose answers are as good as
those of what runs now. The highest of them and its ties are the group. What runs now stays unless a config of the group
is shown to be ahead of it; among those that are, the other workloads decide, then latency, then how few settings
change. The terminal, the site, SQL, apply and the gate all read this one.

A difference is shown where it is beyond the margin and beyond what the studentized range of all candidates allows, so
that the best of many alike is called ahead in 5% of sweeps at most. A loss on another workload or in latency counts
where it is beyond its margin and, where launches were repeated, beyond Student's t at 99%: there are several of them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tokenpeak.ranking.intervals import CONFIDENCE, range_bound, range_critical, t_critical
from tokenpeak.ranking.ties import Verdicts, winner_group
from tokenpeak.spec.sweep import MARGIN

Outcome = Literal["run", "ahead", "keep", "none_holds", "not_known"]
OUTCOMES: dict[Outcome, str] = {
    "run": "run",
    "ahead": "ahead, not shown",
    "keep": "keep what you run",
    "none_holds": "nothing holds the SLO",
    "not_known": "not known",
}
"""What every page and command calls an outcome."""
Hold = Literal["no_limit", "held", "not_proven", "broken"]
"""Of the SLO: held with confidence, in the figures alone, or not in a launch; no_limit: nothing was limited."""
Answers = Literal["same", "passed", "not_compared", "failed"]
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


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to run on one kind of hardware.

    `config` is the one to run, that is ahead, or to keep; of none_holds the one that comes nearest to the SLO. None:
    no candidate may be named. `current` is what runs now, None where it gave no result.
    """

    outcome: Outcome
    config: str | None = None
    current: str | None = None
    verdicts: Verdicts
    """Of the candidates that may be run; the launches of all show the noise."""
    measured: Verdicts
    """Of all candidates."""
    group: tuple[str, ...] = ()
    """The highest and its ties, best first."""
    merit: Merit = "alone"
    gain: Gain | None = None
    """Of the config over what runs now; None where they are the same, or there is no other."""
    faster: tuple[Faster, ...] = ()
    is_hold_proven: bool = True
    excess: float | None = None
    """Of none_holds: the nearest config's worst value over its limit."""
    distinguishable: float | None = None
    """The smallest difference (share) that the sweep shows in 95% of cases between two configs; None: not known."""
    further_launches: int | None = None
    """Of the config and of what runs now, that would show the lead if it is as measured; None: no few would."""

    @property
    def words(self) -> str:
        """The outcome as pages call it."""
        return OUTCOMES[self.outcome]

    @property
    def is_shown(self) -> bool:
        """Whether launches show the config to be ahead: only then it is a recommendation."""
        return self.outcome == "run"


def decide(
    candidates: Sequence[Candidate],
    *,
    higher_is_better: bool = True,
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
) -> Decision:
    """The decision among candidates of one kind of hardware; those without a launch take no part."""
    measured = [each for each in candidates if len(each.launches)]
    sweep = _Sweep(measured, higher_is_better, margin, confidence)
    everyone = sweep.verdicts(measured)
    current = next((each for each in measured if each.is_current), None)
    limited = [each for each in measured if each.hold != "broken"]
    if measured and not limited:
        nearest = min(measured, key=lambda each: math.inf if each.excess is None else each.excess)
        return Decision(
            outcome="none_holds",
            config=nearest.config,
            current=current.config if current else None,
            verdicts=everyone,
            measured=everyone,
            excess=nearest.excess,
        )
    comparable = [each for each in limited if each.answers in ("same", "passed")]
    proven = {each.config for each in comparable if each.hold != "not_proven"}
    # What runs now needs no proof to go on running.
    allowed = [each for each in comparable if each.config in proven or not proven or each.is_current]
    verdicts = sweep.verdicts(allowed)
    kept = current.config if current is not None and current.config in verdicts.ranked else None
    group = [each.config for each in verdicts.standings if each.may_be_recommended]
    outcome, config, merit = _chosen(sweep, verdicts, group, kept, current)
    if len(everyone.standings) < 2:
        outcome = "not_known"
    is_hold_proven = config in proven
    other = kept if kept not in (None, config) else next((each for each in verdicts.ranked if each != config), None)
    return Decision(
        outcome="ahead" if outcome == "run" and not is_hold_proven else outcome,
        config=config,
        current=current.config if current else None,
        verdicts=verdicts,
        measured=everyone,
        group=tuple(group),
        merit=merit,
        gain=sweep.gain(verdicts, config, kept) if config and kept and kept != config else None,
        faster=sweep.faster(everyone, {each.config for each in allowed}, config),
        is_hold_proven=is_hold_proven,
        distinguishable=sweep.distinguishable(verdicts, config, other) if config and other else None,
        further_launches=sweep.further_launches(verdicts, config, kept)
        if config and kept and outcome == "ahead"
        else None,
    )


def _chosen(
    sweep: "_Sweep", verdicts: Verdicts, group: Sequence[str], kept: str | None, current: Candidate | None
) -> tuple[Outcome, str | None, Merit]:
    """The outcome, its config, and what set that apart in its group."""
    if not group:
        return "not_known", None, "alone"
    is_noise_known = verdicts.noise is not None
    if kept is None:
        config, merit, _ = sweep.choice(verdicts, group)
        if current is not None and current.hold == "broken":
            return "run", config, merit
        if len(group) == len(verdicts.standings):
            return "not_known", config, merit
        return "run" if is_noise_known else "ahead", config, merit
    if shown := [config for config in group if sweep.is_shown(verdicts, config, kept)]:
        config, merit, _ = sweep.choice(verdicts, shown)
        return "run", config, merit
    config, merit, lost = sweep.choice(verdicts, group)
    if config != kept:
        return "run" if kept in lost else "ahead", config, merit
    return "keep", config, merit


class _Sweep:
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
        rivals = {*(each.config for each in verdicts.standings if each.may_be_recommended), kept}
        width = self._width(verdicts, config, kept, means=len(rivals))
        ratio = self._sign * self.lead(verdicts, config, kept)
        if width is None:
            return Gain(ratio=math.exp(ratio), low=None, high=None)
        return Gain(ratio=math.exp(ratio), low=math.exp(ratio - width), high=math.exp(ratio + width))

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
        values = {config: getattr(self._of[config], step) for config in left}
        shared = [name for name in values[left[0]] if all(min(own.get(name) or [0]) > 0 for own in values.values())]
        worst = dict.fromkeys(left, (0.0, False))
        for name in shared:
            verdicts = winner_group(
                {config: own[name] for config, own in values.items()},
                higher_is_better=sign > 0,
                margin=margin,
                confidence=1 - (1 - LOSS_CONFIDENCE) / len(shared),
            )
            for each in verdicts.standings:
                is_lost = each.standing == "worse" or (each.standing == "unknown" and not each.is_near)
                loss = abs(math.log(each.ratio)) if is_lost else 0.0
                if loss > worst[each.config][0]:
                    worst[each.config] = loss, each.standing == "worse"
        return worst

    def _width(self, verdicts: Verdicts, config: str, other: str, means: int | None = None) -> float | None:
        """Half of the interval (log) of a difference, as wide as a choice among so many asks for; None: among all."""
        error = _error(verdicts, config, other)
        if error is None:
            return None
        means = len(verdicts.standings) if means is None else means
        return range_critical(max(2, means), verdicts.freedom, self._confidence) / math.sqrt(2) * error


def _error(verdicts: Verdicts, config: str, other: str) -> float | None:
    """The standard error (log) of a difference; None where no config was launched again."""
    half = verdicts.half_width(config, other)
    return None if half is None else half / t_critical(verdicts.freedom)


def _reached(freedom: int) -> float:
    """The standard errors by which a difference has to be larger than a threshold to pass it in 95% of cases.

    Student's t at 99%: sweeps whose launches happen to vary little say that they show small differences.
    """
    return t_critical(freedom, 0.98)
