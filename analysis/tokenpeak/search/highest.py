"""The highest value of an axis, such as gpu_memory_utilization, that launches and survives the load, in few launches.

A launch that starts and then runs out of memory under load counts as a failure: what is free when idle is not enough.
Values that work are assumed to lie below those that do not, so each launch halves what is left. Every launch is a
trial like any other, with the whole load, and the search then goes on with the configs that have the value found.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tokenpeak.records import FAILURE_CAUSES, Plan, PlannedConfig
from tokenpeak.search.history import Budget, Finished, Outcome, Proposal, Strategy, Wait, next_replicate
from tokenpeak.spec.sweep import SearchSpec

FIRST = 5 / 6
"""Where among the values the first launch is: 0.95 of the usual ones, and nearer to the top than a half anywhere."""
DOUBTFUL_LAUNCHES = 2
"""A value whose launches failed so often for reasons that say nothing of it is taken for too high."""


def climbers(plan: Plan) -> tuple[tuple[PlannedConfig, ...], ...]:
    """Each config at its values in ascending order, the one that asks for most memory otherwise first.

    That is the one to which the prediction leaves the fewest tokens of KV cache; in the plan's order where
    there is no prediction. Empty when the plan seeks no highest value, or none of the axis's configs is feasible.
    """
    groups: dict[tuple[tuple[str, str], ...], list[PlannedConfig]] = {}
    for planned in plan.feasible:
        choices = planned.config.choices
        if plan.highest is not None and plan.highest in choices:
            others = tuple((axis, name) for axis, name in choices.items() if axis != plan.highest)
            groups.setdefault(others, []).append(planned)
    ladders = (tuple(sorted(group, key=lambda planned: value_on(plan, planned))) for group in groups.values())
    return tuple(sorted(ladders, key=lambda ladder: _room(ladder[-1])))


def _room(planned: PlannedConfig) -> float:
    tokens = planned.prediction.kv_cache_tokens if planned.prediction else None
    return math.inf if tokens is None else tokens


def value_on(plan: Plan, planned: PlannedConfig) -> float:
    """The config's value on the axis."""
    assert plan.highest is not None, "only a plan that seeks a highest value has such an axis"
    return float(planned.config.choices[plan.highest])


def at_value(plan: Plan, name: str) -> Plan:
    """The plan with this value of the axis alone, and the configs outside the grid."""
    axis = plan.highest or ""
    feasible = tuple(planned for planned in plan.feasible if planned.config.choices.get(axis, name) == name)
    return plan.model_copy(update={"feasible": feasible, "highest": None})


def as_predicted(plan: Plan) -> Plan:
    """Plan that is searched if the value launched first should be the highest; the plan itself without such an axis."""
    ladders = climbers(plan)
    if plan.highest is None or not ladders:
        return plan
    return at_value(plan, ladders[0][first_of(len(ladders[0]))].config.choices[plan.highest])


def first_of(values: int) -> int:
    """Which of so many values is launched first, from 0."""
    return round(FIRST * (values - 1))


def highest_lines(plan: Plan) -> list[str]:
    """Sentence on how a plan finds a highest value; none for another."""
    ladders = climbers(plan)
    if plan.highest is None or not ladders:
        return []
    names = [rung.config.choices[plan.highest] for rung in ladders[0]]
    others = [f"{axis}={name}" for axis, name in ladders[0][0].config.choices.items() if axis != plan.highest]
    by = f" by {', '.join(others)}, which asks for most memory" if len(ladders) > 1 else ""
    return [
        f"{plan.highest}: of the {len(names)} values from {names[0]} to {names[-1]}, the highest that launches and "
        f"carries the whole load is found first, in about {math.ceil(math.log2(len(names))) + 1} launches{by}; then "
        f"{len(as_predicted(plan).feasible)} configs are searched at it"
    ]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One launch: `survived` is True when it started and carried the whole load."""

    value: float
    survived: bool


def next_highest(attempts: Sequence[Attempt], values: Sequence[float]) -> float | None:
    """The next of `values` (ascending) to launch; None once `survivor` is the answer; a function of the attempts alone.

    A value that failed once is not tried again: what fails at times is too high. Attempts at other values are ignored.
    """
    launches = [attempt for attempt in attempts if attempt.value in values]
    top = len(values) - 1
    worked, failed = _bounds(launches, values)
    if failed - worked <= 1:
        return None
    if not launches:
        chosen = first_of(len(values))
    elif failed > top:
        # Nothing failed yet: the top is the answer as often as not.
        chosen = top
    elif worked < 0:
        # Nothing worked yet: widening steps down find the edge sooner than halves of the whole range.
        chosen = max(0, failed - 2 ** (1 + sum(not attempt.survived for attempt in launches)))
    else:
        chosen = (failed + worked) // 2
    return values[chosen]


def survivor(attempts: Sequence[Attempt], values: Sequence[float]) -> float | None:
    """The highest value that survived so far; None when none did."""
    worked, _ = _bounds([attempt for attempt in attempts if attempt.value in values], values)
    return values[worked] if worked >= 0 else None


def launches_left(attempts: Sequence[Attempt], values: Sequence[float]) -> int:
    """About how many launches are still to come beside the one at the value found; 0 when it is found."""
    worked, failed = _bounds([attempt for attempt in attempts if attempt.value in values], values)
    if failed - worked <= 1:
        return 0
    return math.ceil(math.log2(failed - worked if worked >= 0 else failed))


def _bounds(attempts: Sequence[Attempt], values: Sequence[float]) -> tuple[int, int]:
    """The places of the highest value that survived (−1: none yet) and of the lowest that failed above it."""
    place = {value: index for index, value in enumerate(values)}
    failed = min((place[attempt.value] for attempt in attempts if not attempt.survived), default=len(values))
    survived = [place[attempt.value] for attempt in attempts if attempt.survived]
    return max((index for index in survived if index < failed), default=-1), failed


@dataclass(frozen=True, kw_only=True)
class Climb:
    """How far the search for the highest value is. `rungs` are the climbing config at each value, ascending."""

    rungs: tuple[PlannedConfig, ...]
    next_value: float | None
    """To launch next; None when the search has ended."""
    highest: float | None
    """The highest value that survived, when the search has ended; None before, and where even the lowest failed."""
    launches: int
    """That it took so far, those included that said nothing."""
    left: int
    """About how many are still to come, beside the one at the value found."""
    failures: tuple[tuple[str, str], ...]
    """The name of each value that failed, with the cause, in the order of the launches."""


def climb(plan: Plan, history: Sequence[Outcome]) -> Climb | None:
    """How the search for the plan's highest value stands; None for a plan that has no such axis.

    A config that fails for a reason that no value mends is left, and the one that asks for most memory after it climbs.
    The value is found once: later launches of it that fail are failed trials, and change nothing.
    """
    done = [outcome for outcome in history if outcome.status != "interrupted"]
    last: Climb | None = None
    for rungs in climbers(plan):
        last, stuck = _climb(plan, rungs, done)
        if not stuck:
            return last
    return last


def _climb(plan: Plan, rungs: tuple[PlannedConfig, ...], done: Sequence[Outcome]) -> tuple[Climb, bool]:
    """How this config's climb stands, and whether it cannot be launched at any value."""
    assert plan.highest is not None, "only a plan that seeks a highest value has rungs"
    planned_of = {rung.config.config_id: rung for rung in rungs}
    values = [value_on(plan, rung) for rung in rungs]
    attempts: list[Attempt] = []
    failures: list[tuple[str, str]] = []
    doubtful: Counter[str] = Counter()
    launches, stuck = 0, False
    step = next_highest(attempts, values)
    for outcome in done:
        rung = planned_of.get(outcome.config_id)
        if rung is None:
            continue
        if stuck or step is None:
            break
        launches += 1
        value, cause = value_on(plan, rung), FAILURE_CAUSES.get(outcome.failure_cause or "")
        if outcome.status == "failed":
            failures.append((rung.config.choices[plan.highest], outcome.failure_cause or ""))
        if outcome.status == "ok":
            attempts.append(Attempt(value=value, survived=True))
        elif cause is not None and cause.is_retryable:
            doubtful[outcome.config_id] += 1
            if doubtful[outcome.config_id] >= DOUBTFUL_LAUNCHES:
                attempts.append(Attempt(value=value, survived=False))
        elif cause is not None and cause.climb == "too_high":
            attempts.append(Attempt(value=value, survived=False))
        elif cause is not None and cause.climb == "too_low":
            values = [other for other in values if other > value]
        else:
            stuck = True
        step = None if stuck else next_highest(attempts, values)
    made = Climb(
        rungs=rungs,
        next_value=step,
        highest=None if stuck or step is not None else survivor(attempts, values),
        launches=launches,
        left=0 if stuck else launches_left(attempts, values),
        failures=tuple(failures),
    )
    return made, stuck


def found_name(plan: Plan, made: Climb) -> str | None:
    """The name of the value found, as the axis has it; None before, and when none survived."""
    if made.highest is None or plan.highest is None:
        return None
    return next(rung.config.choices[plan.highest] for rung in made.rungs if value_on(plan, rung) == made.highest)


def climb_words(plan: Plan, history: Sequence[Outcome]) -> str | None:
    """What was found and in how many launches of which config, in a sentence; None for a plan without such an axis."""
    made = climb(plan, history)
    if made is None or plan.highest is None:
        return None
    others = [f"{axis}={name}" for axis, name in made.rungs[0].config.choices.items() if axis != plan.highest]
    launches = f"{made.launches} launch{'es' if made.launches != 1 else ''}"
    launches += f" of {', '.join(others)}" if others else ""
    low, high = (rung.config.choices[plan.highest] for rung in (made.rungs[0], made.rungs[-1]))
    failed = [f"{name} ({cause.replace('_', ' ')})" for name, cause in made.failures]
    failures = f"; failed: {', '.join(failed)}" if failed else "; none failed"
    if (name := found_name(plan, made)) is not None:
        answer = f"{plan.highest}={name} is the highest of {low} to {high} that launched and carried the whole load"
        rest = " The other configs are tried at that value alone." if len(climbers(plan)) > 1 else ""
        return f"{answer}, found in {launches}{failures}.{rest}"
    if made.next_value is None:
        return f"No {plan.highest} of {low} to {high} launched and carried the whole load, by {launches}{failures}."
    return f"The highest {plan.highest} of {low} to {high} is not found yet, after {launches}{failures}."


def searched(plan: Plan, history: Sequence[Outcome]) -> Plan:
    """The plan with what is searched of it: the configs with the value found, or predicted before it is."""
    made = climb(plan, history)
    name = found_name(plan, made) if made else None
    return as_predicted(plan) if name is None else at_value(plan, name)


class Highest:
    """Finds the highest value of the plan's axis, baselines first, then searches on among the configs that have it.

    `make` makes the strategy for the search and the plan that are left then.
    """

    def __init__(self, search: SearchSpec, plan: Plan, make: Callable[[SearchSpec, Plan], Strategy]) -> None:
        self._search = search
        self._plan = plan
        self._make = make
        self._budget = Budget.of(search, plan)
        names = {planned.config.name: planned.config for planned in plan.feasible}
        baselines = [names[name] for name in search.baseline if name in names]
        self._baseline = [config.config_id for config in baselines if plan.highest not in config.choices]
        self._made: dict[tuple[str, int], Strategy] = {}

    def propose(
        self, history: Sequence[Outcome], pending: Collection[tuple[str, int]], node: str = ""
    ) -> Proposal | Wait | Finished:
        """The next launch of the climb, or what the strategy proposes among the configs with the value found."""
        done = [outcome for outcome in history if outcome.status != "interrupted"]
        if spent := self._budget.spent(done, pending):
            return Finished(reason=spent)
        launched = {outcome.config_id for outcome in done} | {config_id for config_id, _ in pending}
        made = climb(self._plan, done)
        assert made is not None, "only a plan with such an axis is searched so"
        if (name := found_name(self._plan, made)) is not None:
            strategy, searched = self._strategy(name, done)
            return strategy.propose(*_within(searched, done, pending), node)
        for config_id in self._baseline:
            if config_id not in launched:
                return self._proposal(config_id, done, pending, "baseline: gains are stated against it")
        rungs = {value_on(self._plan, rung): rung.config.config_id for rung in made.rungs}
        if made.next_value is None:
            return Finished(reason=f"no {self._plan.highest} launched and carried the whole load")
        if self._search.trials is not None and len(done) + len(pending) >= self._search.trials:
            return Finished(reason=f"all trials are made; {self._plan.highest} is not found")
        if any(config_id in rungs.values() for config_id, _ in pending):
            return Wait(reason=f"the next {self._plan.highest} depends on a trial that is running")
        reason = f"{self._plan.highest}: launch {made.launches + 1} to find the highest that survives the load"
        return self._proposal(rungs[made.next_value], done, pending, reason)

    def trials_made(self, history: Sequence[Outcome]) -> int:
        """The launches of the climb, and those that count among the configs with the value found."""
        done = [outcome for outcome in history if outcome.status != "interrupted"]
        if (search := self._at_highest(done)) is None:
            return len(done)
        strategy, own = search
        return len(done) - len(own) + strategy.trials_made(own)

    def choose(self, history: Sequence[Outcome]) -> str | None:
        """The recommended config of those with the value found; None before it is found."""
        search = self._at_highest([outcome for outcome in history if outcome.status != "interrupted"])
        return None if search is None else search[0].choose(search[1])

    def _at_highest(self, done: Sequence[Outcome]) -> tuple[Strategy, list[Outcome]] | None:
        """The search among the configs with the value found, and its own history; None before it is found."""
        made = climb(self._plan, done)
        name = found_name(self._plan, made) if made else None
        if name is None:
            return None
        strategy, searched = self._strategy(name, done)
        return strategy, _within(searched, done, ())[0]

    def _strategy(self, name: str, done: Sequence[Outcome]) -> tuple[Strategy, frozenset[str]]:
        """The strategy among the configs with this value, and those configs; its trials are what the climb left."""
        plan = at_value(self._plan, name)
        searched = frozenset(planned.config.config_id for planned in plan.feasible)
        paid = sum(outcome.config_id not in searched for outcome in done)
        if (name, paid) not in self._made:
            trials = self._search.trials
            left = self._search.model_copy(update={"trials": None if trials is None else max(1, trials - paid)})
            self._made[name, paid] = self._make(left, plan)
        return self._made[name, paid], searched

    def _proposal(
        self, config_id: str, done: Sequence[Outcome], pending: Collection[tuple[str, int]], reason: str
    ) -> Proposal:
        return Proposal(config_id=config_id, replicate=next_replicate(config_id, done, pending), reason=reason)


def _within(
    searched: frozenset[str], done: Sequence[Outcome], pending: Collection[tuple[str, int]]
) -> tuple[list[Outcome], list[tuple[str, int]]]:
    """The history and the pending trials of these configs alone."""
    return [outcome for outcome in done if outcome.config_id in searched], [
        key for key in pending if key[0] in searched
    ]
