"""Grid and random search: every config, or a random sample, in a randomized order that the seed fixes."""

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean

from tokenpeak.metrics import Direction
from tokenpeak.records import TRANSIENT_CAUSES, Plan
from tokenpeak.search.finals import Finals
from tokenpeak.search.history import Budget, Finished, Outcome, Proposal, Wait, alike_by_answers, by_own_fault
from tokenpeak.spec.sweep import SearchSpec


class Grid:
    """Each config once in random order, then each again, and so on: randomized blocks of replicates.

    Configs of one class cannot differ under the workload: one of each class is tried first, the rest as budget remains.
    Baselines come first; the first of them is launched again after each `anchor_every` trials, so that drift shows.
    Without baselines the first config of the order is the anchor. A config that cannot work is not launched again; one
    whose launches all failed for reasons that say nothing of it is launched again at the end.
    """

    def __init__(self, search: SearchSpec, plan: Plan, *, direction: Direction) -> None:
        sign = -1.0 if direction == "lower" else 1.0
        self._sign = sign
        self._order = _order(search, plan)
        self._budget = Budget.of(search, plan)
        self._trials = search.trials
        self._finalists = search.finalists or 0
        # The number after a config's last launch in the order is that of its launch at the end.
        first = 2 + max(replicate for _, replicate in self._order)
        self._alike = alike_by_answers(plan)
        seed = f"{search.seed} {plan.hardware}"
        self._finals = Finals(search=search, seed=seed, first=first, sign=sign, alike=self._alike)

    def propose(
        self, history: Sequence[Outcome], pending: Collection[tuple[str, int]], node: str = ""
    ) -> Proposal | Wait | Finished:
        """The first trial of the order that was not made and is not running; after the last, those of finalists."""
        done = [outcome for outcome in history if outcome.status != "interrupted"]
        if spent := self._budget.spent(done, pending):
            return Finished(reason=spent)
        tried = [outcome for outcome in done if outcome.replicate < self._finals.first]
        running = [key for key in pending if key[1] < self._finals.first]
        step = self._next(tried, running)
        if isinstance(step, Proposal):
            return step
        if not self._finalists:
            return Finished(reason=step)
        if running:
            return Wait(reason=f"{step}; finalists depend on trials that are running")
        means = self._means(tried)
        best = sorted(means, key=means.__getitem__, reverse=True)[: self._finalists]
        return self._finals.step(best, step, done, pending, node)

    def remaining(self, done: Sequence[Outcome]) -> int:
        """How many launches are still to come if all of them work, without a budget of time."""
        tried = [outcome for outcome in done if outcome.replicate < self._finals.first]
        launches = list(self._launches(tried))
        left = len(launches) if self._trials is None else max(0, min(len(launches), self._trials - len(tried)))
        if not self._finalists:
            return left
        means = self._means(tried)
        if not left:
            best = sorted(means, key=means.__getitem__, reverse=True)[: self._finalists]
            return self._finals.remaining(best, 0, done)
        candidates = means.keys() | {proposal.config_id for proposal in launches[:left]}
        return left + self._finals.remaining([], min(self._finalists, len(candidates)), done)

    def trials_made(self, history: Sequence[Outcome]) -> int:
        """All launches but those of finalists."""
        return sum(outcome.status != "interrupted" and outcome.replicate < self._finals.first for outcome in history)

    def choose(self, history: Sequence[Outcome]) -> str | None:
        """The config with the best mean over its launches."""
        means = self._means(history)
        return max(means, key=means.__getitem__, default=None)

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

    def _means(self, history: Sequence[Outcome]) -> dict[str, float]:
        """The mean over its launches of each config that ran within the SLO, best high."""
        values: dict[str, list[float]] = {}
        for outcome in history:
            if outcome.feasible and outcome.value is not None:
                values.setdefault(outcome.config_id, []).append(self._sign * outcome.value)
        return {config_id: fmean(launches) for config_id, launches in values.items()}


def _order(search: SearchSpec, plan: Plan) -> tuple[tuple[str, int], ...]:
    """Every (config_id, replicate) in the order in which it is tried."""
    names = {planned.config.name: planned.config.config_id for planned in plan.feasible}
    classes = {planned.config.config_id: planned.config_class for planned in plan.feasible}
    baseline = [names[name] for name in search.baseline if name in names]
    others = [planned.config.config_id for planned in plan.feasible if planned.config.config_id not in baseline]
    generator = random.Random(f"{search.seed} {plan.hardware}")  # noqa: S311 - an order, not a secret
    launches: list[str] = []
    anchor: str | None = None
    for block in range(search.replicates):
        shuffled = others.copy()
        generator.shuffle(shuffled)
        ordered = (
            baseline + _classes_first(shuffled, classes)
            if block == 0
            else generator.sample(baseline + shuffled, len(plan.feasible))
        )
        for config_id in ordered:
            anchor = anchor or config_id
            if search.anchor_every and launches and len(launches) % search.anchor_every == 0:
                launches.append(anchor)
            launches.append(config_id)
    count: Counter[str] = Counter()
    order: list[tuple[str, int]] = []
    for config_id in launches:
        order.append((config_id, count[config_id]))
        count[config_id] += 1
    return tuple(order)


def _classes_first(shuffled: Sequence[str], classes: Mapping[str, str]) -> list[str]:
    """The configs with the first of each class before all others, otherwise in their order."""
    firsts = {classes[config_id]: config_id for config_id in reversed(shuffled)}
    return sorted(shuffled, key=lambda config_id: firsts[classes[config_id]] != config_id)
