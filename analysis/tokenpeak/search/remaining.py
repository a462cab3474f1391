"""Trials to come: how many launches a search still makes, over plan and history; the only count of them.

The plan counts with an empty history, the progress line and the live page with what has ended so far. What nobody can
know yet is taken as it is likeliest: launches work, and an adaptive search goes on to the number of trials that it may
make, or, without one, to one launch of each class of configs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import ceil, inf
from statistics import fmean

from tokenpeak.plan.estimate import Estimate, estimate, quality_s, trial_time
from tokenpeak.predict.model import ModelFacts
from tokenpeak.ranking.objective import metric_direction
from tokenpeak.records import TRANSIENT_CAUSES, NodeFacts, Plan
from tokenpeak.search.anchors import Anchors, launches_of
from tokenpeak.search.finals import FINALISTS, SCREENING_LAUNCHES, Finals, lone_launches
from tokenpeak.search.grid import Grid
from tokenpeak.search.highest import climb, searched
from tokenpeak.search.history import Budget, Outcome, Strategy, by_own_fault
from tokenpeak.search.searches import Searches
from tokenpeak.spec.sweep import SearchSpec, SweepSpec
from tokenpeak.spec.window import parse_window


@dataclass(frozen=True, kw_only=True)
class TrialCount:
    """How far a sweep is: trials that ended, and those that are still to come."""

    ended: int = 0
    remaining: int

    @property
    def total(self) -> int:
        """About how many trials the sweep makes in all."""
        return self.ended + self.remaining


def trial_count(
    spec: SweepSpec, histories: Iterable[tuple[Plan, Sequence[Outcome]]], searches: Searches | None = None
) -> TrialCount:
    """The count over each hardware's plan with its history; `searches` are those that carry out the sweep, if any."""
    every = list(histories)
    limits = searches.limits if searches is not None else limits_of(spec, every)
    counts = [
        (
            sum(outcome.status != "interrupted" for outcome in history),
            remaining(
                spec.model_copy(update={"search": limits[plan.hardware]}),
                plan,
                history,
                searches.strategy(plan.hardware) if searches is not None else None,
            ),
        )
        for plan, history in every
    ]
    return TrialCount(ended=sum(ended for ended, _ in counts), remaining=sum(left for _, left in counts))


def limits_of(spec: SweepSpec, searches: Sequence[tuple[Plan, Sequence[Outcome]]]) -> dict[str, SearchSpec]:
    """Each hardware's search with what it has of the sweep's budget, after these histories."""
    histories = {plan.hardware: history for plan, history in searches}
    shared = Searches(spec, [plan for plan, _ in searches])
    shared.settle(histories)
    return shared.limits


def remaining(spec: SweepSpec, plan: Plan, history: Sequence[Outcome], strategy: Strategy | None = None) -> int:
    """How many trials of one hardware have not ended yet, those that run now included.

    `history` holds the trials that ended; interrupted ones are requeued and do not count. A `strategy` of this search
    is asked instead of one that is made for the question, which takes ten times as long.
    """
    done = [outcome for outcome in history if outcome.status != "interrupted"]
    left = _launches(spec.search, plan, done, metric=spec.objective.metric, strategy=strategy)
    budget = Budget.of(spec.search, plan)
    each_s = fmean(outcome.duration_s for outcome in done) if done else plan.estimated_trial_s
    if budget.node_s is None or not each_s:
        return left
    # The first trial is made in any case: nobody knows better how long it takes.
    return min(left, max(0 if done else 1, int(budget.node_s / each_s) - len(done)))


def cost_of(
    spec: SweepSpec, plan: Plan, nodes: Sequence[NodeFacts], models: Mapping[str, ModelFacts | None]
) -> Estimate:
    """What carrying out the whole plan on its nodes takes."""
    own = [node for node in nodes if node.node in plan.nodes]
    trials = remaining(spec, plan, ())
    measuring_s = quality_s(spec, plan, own[0]) if own else 0.0
    return estimate(spec, trial_time(spec, plan, own, models), own, trials=trials, measuring_s=measuring_s)


def _launches(
    search: SearchSpec, plan: Plan, done: Sequence[Outcome], *, metric: str, strategy: Strategy | None = None
) -> int:
    """The launches to come without a budget of time."""
    if not plan.feasible:
        return 0
    made = climb(plan, done)
    if made is not None:
        if made.next_value is None and made.highest is None:
            return 0
        return _beside_climb(search, searched(plan, done), done, made.left, metric=metric)
    if search.strategy == "adaptive":
        return _adaptive(search, plan, done, metric=metric, strategy=strategy)
    return Grid(search, plan, direction=metric_direction(metric)).remaining(done)


def _beside_climb(search: SearchSpec, plan: Plan, done: Sequence[Outcome], finding: int, *, metric: str) -> int:
    """The launches to come of a search for the highest value: of the climb, then among configs with the value."""
    configs = {planned.config.config_id for planned in plan.feasible}
    own = [outcome for outcome in done if outcome.config_id in configs]
    if search.trials is None:
        return finding + _launches(search, plan, own, metric=metric)
    finding = min(finding, max(0, search.trials - len(done)))
    trials = max(1, search.trials - finding - (len(done) - len(own)))
    return finding + _launches(search.model_copy(update={"trials": trials}), plan, own, metric=metric)


def _adaptive(
    search: SearchSpec, plan: Plan, done: Sequence[Outcome], *, metric: str, strategy: Strategy | None
) -> int:
    """The launches to come of an adaptive search: of its screening, its anchors and its finals."""
    lone = lone_launches(search, plan)
    finals = Finals(search=search, seed="", first=SCREENING_LAUNCHES, sign=1.0, alike={}, lone=lone)
    screened = [outcome for outcome in done if outcome.replicate < SCREENING_LAUNCHES]
    if (chosen := _finalists(search, plan, done, metric=metric, strategy=strategy)) is not None:
        return finals.remaining(chosen, 0, done) + _anchors(search, plan, done, len(screened), chosen)
    settled = {outcome.config_id for outcome in screened if outcome.failure_cause not in TRANSIENT_CAUSES}
    unknown = sum(planned.config.config_id not in settled for planned in plan.feasible)
    most = search.trials or len({planned.config_class for planned in plan.feasible})
    left = max(1, min(most - len(screened), unknown))
    candidates = min(len({outcome.config_id for outcome in screened if outcome.feasible}) + left, len(plan.feasible))
    finalists = FINALISTS if search.finalists is None else search.finalists
    all_final = [planned.config.config_id for planned in plan.feasible] if candidates <= finalists else []
    anchors = _anchors(search, plan, done, len(screened) + left, all_final)
    return left + anchors + finals.remaining([], min(finalists, candidates), done)


def _finalists(
    search: SearchSpec, plan: Plan, done: Sequence[Outcome], *, metric: str, strategy: Strategy | None
) -> list[str] | None:
    """The finalists of an adaptive search; None while its screening goes on."""
    if not done:
        return None
    # Imported here: its model of the space costs a second of processor time that a plan does not need.
    from tokenpeak.search.adaptive import Adaptive

    if not isinstance(strategy, Adaptive):
        strategy = Adaptive(search, plan, metric=metric, direction=metric_direction(metric))
    return strategy.finalists(done)


def _anchors(search: SearchSpec, plan: Plan, done: Sequence[Outcome], screened: int, finalists: Collection[str]) -> int:
    """How often the anchor is still launched again, with a screening of so many launches and these finalists."""
    configs = {planned.config.name: planned.config.config_id for planned in plan.feasible}
    failed = by_own_fault(done)
    baselines = [configs[name] for name in search.baseline if name in configs and configs[name] not in failed]
    if not baselines:
        return 0
    anchors = Anchors.of(search, plan, trials=search.trials or inf, replicates=1, after=SCREENING_LAUNCHES)
    made = launches_of(baselines[0], done)
    launches = max(1, made)
    for tried in range(screened + 1):
        launches += anchors.due(launches, tried, is_over=tried == screened)
    # A finalist's launches in the finals are enough.
    launches += baselines[0] not in finalists and anchors.last_due(launches)
    return launches - max(1, made)


START_GUESS = ". How long a start takes was not measured here: these times are a guess until the first trial has ended"
"""What stands behind an outline of a plan for nodes that are not simulated."""
_KINDS = {"grid": "a grid", "random": "a random search", "adaptive": "an adaptive search"}


def downtime_text(plan: Plan, cost: Estimate, idle: Collection[str]) -> str:
    """How long production is down, or, of nodes that are all `idle`, how long they are used."""
    taken = duration_text(cost.production_downtime_s)
    if not set(plan.nodes) <= set(idle):
        return f"production down for {taken}"
    is_one = len(plan.nodes) == 1
    return f"{', '.join(plan.nodes)} {'is' if is_one else 'are'} used for {taken}; nothing of yours is stopped"


def outline(spec: SweepSpec, plan: Plan, cost: Estimate, grid: Estimate, idle: Collection[str] = ()) -> str:
    """What the sweep does on one kind of hardware; beside it the cost of the `grid`, where that is not what it is.

    `idle` nodes have no production.
    """
    nodes = ", ".join(plan.nodes)
    away = cost.trials if spec.restore == "per_trial" else min(cost.trials, len(plan.nodes))
    stopped = (
        downtime_text(plan, cost, idle)
        if set(plan.nodes) <= set(idle)
        else f"production of {nodes} is stopped {_count(away, 'time', 'times')}, "
        f"for {duration_text(cost.production_downtime_s)} in all"
    )
    text = (
        f"{_KINDS[spec.search.strategy]} makes {_count(cost.trials, 'launch', 'launches')} with "
        f"{_count(len(plan.feasible), 'config', 'configs')} to choose from, in {duration_text(cost.duration_s)}; "
        f"{stopped}"
    )
    if spec.window is not None and cost.duration_s:
        nights = ceil(cost.duration_s / window_s(spec.window))
        text += f"; fits {_count(nights, 'night', 'nights')} of {spec.window}"
    if spec.search.strategy == "adaptive" and grid.trials > cost.trials:
        text += f". search: {{strategy: grid}} would make {grid.trials} launches in {duration_text(grid.duration_s)}"
    return text


def window_s(text: str) -> float:
    """The length of a window, on a day of 24 hours."""
    window = parse_window(text)
    day = date(2001, 1, 1)
    length = datetime.combine(day, window.ends) - datetime.combine(day, window.begins)
    return (length % timedelta(days=1)).total_seconds()


def duration_text(seconds: float) -> str:
    """Seconds, minutes or hours, as an estimate deserves them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
