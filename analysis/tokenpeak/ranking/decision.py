"""Decision: which config to run, or why that is not known, from the launches of all candidates. Pure.

Candidates are those that hold the SLO with confidence, else those that hold it without, whose answers are as good as
those of what runs now. The highest of them and its ties are the group. What runs now stays unless a config of the group
is shown to be ahead of it; among those that are, the other workloads decide, then latency, then how few settings
change. The terminal, the site, SQL, apply and the gate all read this one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tokenpeak.ranking.comparisons import Candidate, Comparisons, Faster, Gain, Merit
from tokenpeak.ranking.intervals import CONFIDENCE
from tokenpeak.ranking.ties import Verdicts
from tokenpeak.spec.sweep import MARGIN

Outcome = Literal["run", "ahead", "keep", "none_holds", "not_known"]
OUTCOMES: dict[Outcome, str] = {
    "run": "run",
    "ahead": "ahead, not proven",
    "keep": "keep what you run",
    "none_holds": "nothing holds the SLO",
    "not_known": "not known",
}
"""What every page and command calls an outcome."""


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
    """Of the config over what runs now, or where that stays, of the highest; None where there is no other."""
    faster: tuple[Faster, ...] = ()
    is_hold_proven: bool = True
    is_lead_proven: bool = False
    """Whether it would be run, were it proven to hold the SLO."""
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
    def is_startable(self) -> bool:
        """Whether a command is given for the config: to run, to keep, or one of those that tie."""
        return self.outcome in ("run", "keep", "ahead") or (self.outcome == "not_known" and self.config in self.group)

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
    sweep = Comparisons(measured, higher_is_better, margin, confidence)
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
    is_sole = len(limited) == 1 < len(measured)
    proven = {each.config for each in comparable if each.hold != "not_proven"}
    # What runs now needs no proof to go on running.
    allowed = [each for each in comparable if each.config in proven or not proven or each.is_current]
    verdicts = sweep.verdicts(allowed)
    kept = current.config if current is not None and current.config in verdicts.ranked else None
    group = [each.config for each in verdicts.standings if each.may_be_recommended]
    outcome, config, merit = _chosen(
        sweep, verdicts, group, kept, broken=is_sole or (current is not None and current.hold == "broken")
    )
    if len(everyone.standings) < 2 and kept is None:
        outcome = "not_known"
    is_hold_proven = config in proven
    better = config if config != kept else next(iter(verdicts.ranked), None)
    other = kept if kept not in (None, config) else next((each for each in verdicts.ranked if each != config), None)
    return Decision(
        outcome="ahead" if outcome == "run" and not is_hold_proven else outcome,
        config=config,
        current=current.config if current else None,
        verdicts=verdicts,
        measured=everyone,
        group=tuple(group),
        merit=merit,
        gain=sweep.gain(verdicts, better, kept) if better and kept and kept != better else None,
        faster=sweep.faster(everyone, {each.config for each in allowed}, config),
        is_hold_proven=is_hold_proven,
        is_lead_proven=outcome == "run",
        distinguishable=sweep.distinguishable(verdicts, config, other) if config and other else None,
        further_launches=sweep.further_launches(verdicts, config, kept)
        if config and kept and outcome == "ahead"
        else None,
    )


def _chosen(
    sweep: Comparisons, verdicts: Verdicts, group: Sequence[str], kept: str | None, *, broken: bool
) -> tuple[Outcome, str | None, Merit]:
    """The outcome, its config, and what set that apart in its group; `broken`: what it would replace breaks the SLO."""
    if not group:
        return "not_known", None, "alone"
    is_noise_known = verdicts.noise is not None
    if kept is None:
        config, merit, _ = sweep.choice(verdicts, group)
        if broken:
            return "run", config, merit
        if len(group) == len(verdicts.standings):
            return "not_known", config, merit
        return "run" if is_noise_known else "ahead", config, merit
    if shown := [config for config in group if sweep.is_shown(verdicts, config, kept)]:
        config, merit, _ = sweep.choice(verdicts, shown)
        return "run", config, merit
    config, merit, lost = sweep.choice(verdicts, group)
    if kept in lost:
        return "run", config, merit
    if config != kept and sweep.is_ahead(verdicts, config, kept):
        return "ahead", config, merit
    return "keep", kept, merit if config == kept else "settings"
