"""Leader of a grid: the config with the best mean is launched again, so that one lucky launch wins nothing.

Configs of one class cannot differ under the workload: their launches count as one config's. The leader is launched
until it has three launches; another that is then ahead is launched in its turn. Where the anchor leads, the runner-up
is launched until it has two. There are at most six such launches, failed ones counted. `finalists` replaces them: its
finals launch the best again, and with 0 nothing is.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.records import Plan
from tokenpeak.search.history import Finished, Outcome, Proposal, Wait, by_own_fault, compares, later_launch
from tokenpeak.spec.sweep import SearchSpec

LEADER_LAUNCHES = 3
"""Launches of the leader that gave a result."""
RUNNER_UP_LAUNCHES = 2
"""Launches of the runner-up where the anchor leads."""
MOST_LAUNCHES = 6
"""Further launches on one kind of hardware, at most."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a class of configs achieved."""

    config_id: str
    """The config that stands for its class: a baseline, else the first of the plan, of those that ran."""
    config_class: str
    mean: float
    """Mean log objective, best high."""
    launches: int
    """That gave a result."""


@dataclass(frozen=True, kw_only=True)
class Leader:
    """Launches of the leader, numbered from `first` on; `sign` is −1 where the objective is to be low."""

    classes: Mapping[str, str]
    """Config → its class; baselines first, then in the plan's order."""
    alike: Mapping[str, str]
    """Which configs answer alike; see `alike_by_answers`."""
    sign: float
    first: int
    most: int
    """Further launches at most; 0 where there are none."""

    @classmethod
    def of(cls, search: SearchSpec, plan: Plan, *, alike: Mapping[str, str], sign: float, first: int) -> "Leader":
        """Those of a grid or a random search."""
        ranked = sorted(plan.feasible, key=lambda planned: planned.config.name not in search.baseline)
        return cls(
            classes={planned.config.config_id: planned.config_class for planned in ranked},
            alike=alike,
            sign=sign,
            first=first,
            most=MOST_LAUNCHES if search.finalists is None and compares(search, plan) else 0,
        )

    def standings(self, history: Sequence[Outcome]) -> list[Standing]:
        """Each class that ran and never broke the SLO, the best first; configs that failed by their own fault apart."""
        failed = by_own_fault(history, self.alike)
        logs: dict[str, list[float]] = {}
        ran: set[str] = set()
        broke = set()
        for outcome in history:
            if outcome.config_id in failed or outcome.config_id not in self.classes:
                continue
            if outcome.slo_met is False:
                broke.add(self.classes[outcome.config_id])
            if outcome.feasible and outcome.value is not None:
                logs.setdefault(self.classes[outcome.config_id], []).append(self.sign * math.log(outcome.value))
                ran.add(outcome.config_id)
        heads = {self.classes[config_id]: config_id for config_id in reversed(list(self.classes)) if config_id in ran}
        found = [
            Standing(config_id=config_id, config_class=each, mean=fmean(logs[each]), launches=len(logs[each]))
            for each, config_id in heads.items()
            if each not in broke
        ]
        place = {config_id: number for number, config_id in enumerate(self.classes)}
        return sorted(found, key=lambda standing: (-standing.mean, place[standing.config_id]))

    def step(
        self,
        why: str,
        done: Sequence[Outcome],
        pending: Collection[tuple[str, int]],
        *,
        anchor: str | None,
        is_anchor_due: bool,
    ) -> Proposal | Wait | Finished:
        """The next launch, a wait for what decides about it, or the end. `why` is why the order went no further."""
        if not self.most:
            return Finished(reason=why)
        if all(self._is_further(replicate) for _, replicate in pending):
            again = self._next_launch(done, pending, anchor=anchor, is_anchor_due=is_anchor_due)
            if again is not None:
                return again
        return Wait(reason=f"{why}; who leads depends on trials that are running") if pending else Finished(reason=why)

    def _next_launch(
        self, done: Sequence[Outcome], pending: Collection[tuple[str, int]], *, anchor: str | None, is_anchor_due: bool
    ) -> Proposal | None:
        """The next launch of the leader or the runner-up; None when none is due. `is_anchor_due`: one is to come."""
        made = [(outcome.config_id, outcome.replicate) for outcome in done if not outcome.holdout] + list(pending)
        if sum(self._is_further(replicate) for _, replicate in made) >= self.most:
            return None
        ranked = self.standings(done)
        if not ranked:
            return None
        coming = [self.classes[config_id] for config_id, _ in pending if config_id in self.classes]
        anchored = self.classes.get(anchor) if anchor is not None else None
        if anchored is not None and is_anchor_due:
            coming.append(anchored)
        leader = ranked[0]
        launches = leader.launches + coming.count(leader.config_class)
        if launches < LEADER_LAUNCHES:
            reason = f"leader: launch {launches + 1} of {LEADER_LAUNCHES}, as one launch may have been lucky"
            return later_launch(leader.config_id, done, pending, first=self.first, reason=reason)
        if leader.config_class != anchored or len(ranked) == 1:
            return None
        second = ranked[1]
        launches = second.launches + coming.count(second.config_class)
        if launches < RUNNER_UP_LAUNCHES:
            reason = f"runner-up: launch {launches + 1} of {RUNNER_UP_LAUNCHES}, as one launch may have been unlucky"
            return later_launch(second.config_id, done, pending, first=self.first, reason=reason)
        return None

    def remaining(self, done: Sequence[Outcome], *, anchor: str | None, is_anchor_due: bool) -> int:
        """How many launches are still to come if each gives the mean of its class."""
        made = list(done)
        while step := self._next_launch(made, (), anchor=anchor, is_anchor_due=is_anchor_due):
            mean = next(one.mean for one in self.standings(made) if one.config_id == step.config_id)
            value = math.exp(self.sign * mean)
            made.append(Outcome(config_id=step.config_id, replicate=step.replicate, status="ok", value=value))
        return len(made) - len(done)

    def expected(self, replicates: int) -> int:
        """How many launches are to be expected before the leader is known: it has those of so many blocks then."""
        sizes = [list(self.classes.values()).count(each) for each in set(self.classes.values())]
        return min(self.most, max(0, LEADER_LAUNCHES - replicates * min(sizes)))

    def _is_further(self, replicate: int) -> bool:
        return self.first <= replicate < self.first + MOST_LAUNCHES
