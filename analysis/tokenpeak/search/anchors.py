"""Anchors: further launches of the first baseline, in the middle and at the end, which show noise and drift.

The anchor is the first baseline that did not fail by its own fault; without a baseline in the plan, the first config of
a grid's order. It has three launches at least: its own, one in the middle, one after everything else. Replicates and
the launches of `anchor_every` count among them. `anchor_every: null`, one trial or one class: there are none.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tokenpeak.records import Plan
from tokenpeak.search.finals import FINAL_LAUNCHES
from tokenpeak.search.history import Finished, Outcome, Proposal, Wait, compares, later_launch
from tokenpeak.search.leader import MOST_LAUNCHES
from tokenpeak.spec.sweep import SearchSpec

LEAST_LAUNCHES = 3
"""Launches of the anchor, its own first one included: fewer show neither how much launches vary nor a drift."""


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """When the anchor is due again. Its further launches are numbered from `first` on, above all others."""

    every: int | None
    """Trials from one launch to the next at most; None: the anchor is never launched again."""
    half: float | None
    """Trials before the launch in the middle; None: replicates are that launch."""
    first: int

    @classmethod
    def of(cls, search: SearchSpec, plan: Plan, *, trials: float, replicates: int, after: int) -> "Anchors":
        """The anchors of a search of so many `trials`, whose finals number their launches from `after` on."""
        return cls(
            every=search.anchor_every if compares(search, plan) else None,
            half=max(2, (trials + 1) // 2) if replicates == 1 else None,
            first=after + max(search.replicates, FINAL_LAUNCHES, MOST_LAUNCHES) + 1,
        )

    def due(self, launches: int, tried: int, *, is_over: bool = False) -> bool:
        """Whether the anchor, with so many launches, is due after so many trials; `is_over`: none of them follows."""
        if self.every is None or not launches:
            return False
        is_middle = self.half is not None and launches == 1 and (is_over or tried >= self.half)
        return is_middle or (not is_over and launches <= tried // self.every)

    def last_due(self, launches: int) -> bool:
        """Whether the anchor is due after everything else."""
        return self.every is not None and 0 < launches < LEAST_LAUNCHES

    def proposal(self, anchor: str, done: Sequence[Outcome], pending: Collection[tuple[str, int]]) -> Proposal:
        """The next further launch of the anchor."""
        return later_launch(anchor, done, pending, first=self.first, reason="anchor: shows noise and drift")

    def after(
        self, end: Finished, anchor: str | None, done: Sequence[Outcome], pending: Collection[tuple[str, int]]
    ) -> Proposal | Wait | Finished:
        """The anchor's launch after everything else, where it is due, else the end."""
        if anchor is None or not self.last_due(launches_of(anchor, done, pending)):
            return end
        if pending:
            return Wait(reason="the last anchor comes after all trials that are running")
        return self.proposal(anchor, done, pending)


def launches_of(config_id: str, done: Sequence[Outcome], pending: Collection[tuple[str, int]] = ()) -> int:
    """How often the config was launched or is being launched, its holdout run apart."""
    return sum(outcome.config_id == config_id and not outcome.holdout for outcome in done) + sum(
        pending_id == config_id for pending_id, _ in pending
    )
