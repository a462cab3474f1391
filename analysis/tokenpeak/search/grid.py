"""Grid and random search: every config, or a random sample, in a randomized order that the seed fixes."""

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from tokenpeak.metrics import Direction
from tokenpeak.records import TRANSIENT_CAUSES, Plan
from tokenpeak.search.anchors import Anchors, launches_of
from tokenpeak.search.finals import Finals, lone_launches
from tokenpeak.search.history import Budget, Finished, Outcome, Proposal, Wait, alike_by_answers, by_own_fault
from tokenpeak.search.leader import Leader
from tokenpeak.spec.sweep import SearchSpec


class Grid:
    """Each config once in random order, then each again, and so on: randomized blocks of replicates.

    Configs of one class cannot differ under the workload: one of each class is tried first, the rest as budget remains.
    Baselines come first. A config that cannot work is not launched again; one whose launches all failed for reasons
    that say nothing of it is launched again at the end. Anchors come between, the leader's launches or the finals after
    the order, and the last anchor after everything else; none of these counts as a trial.
    """

    def __init__(self, search: SearchSpec, plan: Plan, *, direction: Direction) -> None:
        sign = -1.0 if direction == "lower" else 1.0
        self._order = _order(search, plan)
        self._budget = Budget.of(search, plan)
        self._trials = search.trials
        self._replicates = search.replicates
        self._finalists = search.finalists or 0
        # The number after a config's last launch in the order is that of its launch at the end.
        first = search.replicates + 1
        self._alike = alike_by_answers(plan)
        seed = f"{search.seed} {plan.hardware}"
        self._finals = Finals(
            search=search, seed=seed, first=first, sign=sign, alike=self._alike, lone=lone_launches(search, plan)
        )
        self._leader = Leader.of(search, plan, alike=self._alike, sign=sign, first=first)
        trials = min(len(self._order), search.trials or len(self._order))
        self._anchors = Anchors.of(search, plan, trials=trials, replicates=search.replicates, after=first)

    def propose(
        self, history: Sequence[Outcome], pending: Collection[tuple[str, int]], node: str = ""
    ) -> Proposal | Wait | Finished:
        """The first trial of the order that was not made and is not running; then what shows how much launches vary."""
        done = [outcome for outcome in history if outcome.status != "interrupted"]
        if spent := self._budget.spent(done, pending):
            return Finished(reason=spent)
        tried = self._tried(done)
        running = [key for key in pending if key[1] < self._finals.first]
        step = self._next(tried, running)
        anchor = self._anchor(done)
        launches = launches_of(anchor, done, pending) if anchor is not None else 0
        is_over = not isinstance(step, Proposal)
        if anchor is not None and self._anchors.due(launches, len(tried) + len(running), is_over=is_over):
            return self._anchors.proposal(anchor, done, pending)
        if isinstance(step, Proposal):
            return step
        if self._finalists:
            if running:
                return Wait(reason=f"{step}; finalists depend on trials that are running")
            end = self._finals.step(self._best(tried), step, done, pending, node)
        else:
            is_due = self._anchors.last_due(launches)
            end = self._leader.step(step, done, pending, anchor=anchor, is_anchor_due=is_due)
        return self._anchors.after(end, anchor, done, pending) if isinstance(end, Finished) else end

    def remaining(self, done: Sequence[Outcome]) -> int:
        """How many launches are still to come if all of them work, without a budget of time."""
        tried = self._tried(done)
        anchor = self._anchor(done)
        anchors = launches_of(anchor, done) if anchor is not None else 0
        coming: list[str] = []
        further = 0
        for proposal in self._launches(tried):
            made = len(tried) + len(coming)
            if self._trials is not None and made >= self._trials:
                break
            if self._anchors.due(anchors, made):
                further, anchors = further + 1, anchors + 1
            coming.append(proposal.config_id)
            anchors += proposal.config_id == anchor
        if self._anchors.due(anchors, len(tried) + len(coming), is_over=True):
            further, anchors = further + 1, anchors + 1
        is_due = self._anchors.last_due(anchors)
        left = len(coming) + further
        if self._finalists:
            return left + self._finals_remaining(coming, done, anchor, is_anchor_due=is_due)
        if left:
            return left + self._leader.expected(self._replicates) + is_due
        return self._leader.remaining(done, anchor=anchor, is_anchor_due=is_due) + is_due

    def _finals_remaining(
        self, coming: Sequence[str], done: Sequence[Outcome], anchor: str | None, *, is_anchor_due: bool
    ) -> int:
        """The launches of the finals and the last anchor, for which its launches in the finals are enough."""
        tried = self._tried(done)
        if not coming:
            best = self._best(tried)
            return self._finals.remaining(best, 0, done) + (is_anchor_due and anchor not in best)
        configs = {*coming, *(standing.config_id for standing in self._leader.standings(tried))}
        candidates = len({self._leader.classes[config_id] for config_id in configs})
        finals = self._finals.remaining([], min(self._finalists, candidates), done)
        return finals + (is_anchor_due and candidates > self._finalists)

    def trials_made(self, history: Sequence[Outcome]) -> int:
        """The launches of the order; anchors, the leader's and finalists' come on top."""
        return len(self._tried([outcome for outcome in history if outcome.status != "interrupted"]))

    def choose(self, history: Sequence[Outcome]) -> str | None:
        """The config with the best mean over its class's launches; None when none ran within the SLO."""
        return next((standing.config_id for standing in self._leader.standings(history)), None)

    def _tried(self, done: Sequence[Outcome]) -> list[Outcome]:
        """The launches of the order, those that were due again included."""
        return [outcome for outcome in done if outcome.replicate < self._finals.first]

    def _anchor(self, done: Sequence[Outcome]) -> str | None:
        """The first config of the order that did not fail by its own fault."""
        failed = by_own_fault(done, self._alike)
        return next((config_id for config_id, _ in self._order if config_id not in failed), None)

    def _best(self, tried: Sequence[Outcome]) -> list[str]:
        """The finalists."""
        return [standing.config_id for standing in self._leader.standings(tried)[: self._finalists]]

    def _next(self, tried: Sequence[Outcome], running: Collection[tuple[str, int]]) -> Proposal | str:
        """The next trial of the order, or why there is none."""
        if self._trials is not None and len(tried) + len(running) >= self._trials:
            return "all trials are made"
        return next(self._launches(tried, running), "every config has been tried")

    def _launches(self, tried: Sequence[Outcome], running: Collection[tuple[str, int]] = ()) -> Iterator[Proposal]:
        """The launches of the order that are neither made nor running, then those that are due again."""
        taken = {(outcome.config_id, outcome.replicate) for outcome in tried} | set(running)
        failed = by_own_fault(tried, self._alike)
        for number, (config_id, replicate) in enumerate(self._order, start=1):
            if (config_id, replicate) in taken or config_id in failed:
                continue
            reason = f"number {number} of {len(self._order)} in random order"
            yield Proposal(config_id=config_id, replicate=replicate, reason=reason)
        planned = Counter(config_id for config_id, _ in self._order)
        causes_of: dict[str, list[str | None]] = {}
        for outcome in tried:
            causes_of.setdefault(outcome.config_id, []).append(outcome.failure_cause)
        for config_id, launches in planned.items():
            causes = causes_of.get(config_id, [])
            if len(causes) == launches and TRANSIENT_CAUSES.issuperset(causes) and (config_id, launches) not in taken:
                reason = f"again: {causes[-1]} says nothing of the config"
                yield Proposal(config_id=config_id, replicate=launches, reason=reason)


def _order(search: SearchSpec, plan: Plan) -> tuple[tuple[str, int], ...]:
    """Every (config_id, replicate) in the order in which it is tried."""
    names = {planned.config.name: planned.config.config_id for planned in plan.feasible}
    classes = {planned.config.config_id: planned.config_class for planned in plan.feasible}
    baseline = [names[name] for name in search.baseline if name in names]
    others = [planned.config.config_id for planned in plan.feasible if planned.config.config_id not in baseline]
    generator = random.Random(f"{search.seed} {plan.hardware}")  # noqa: S311 - an order, not a secret
    order: list[tuple[str, int]] = []
    for block in range(search.replicates):
        shuffled = others.copy()
        generator.shuffle(shuffled)
        ordered = (
            baseline + _classes_first(shuffled, classes)
            if block == 0
            else generator.sample(baseline + shuffled, len(plan.feasible))
        )
        order += [(config_id, block) for config_id in ordered]
    return tuple(order)


def _classes_first(shuffled: Sequence[str], classes: Mapping[str, str]) -> list[str]:
    """The configs with the first of each class before all others, otherwise in their order."""
    firsts = {classes[config_id]: config_id for config_id in reversed(shuffled)}
    return sorted(shuffled, key=lambda config_id: firsts[classes[config_id]] != config_id)
