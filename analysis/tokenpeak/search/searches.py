"""Searches of a sweep: one for each kind of hardware, each with limits of its own or with its share of one budget.

With `search.budget: per_sweep` each search begins with an equal share of the trials, and of the GPU-hours with a share
in proportion to what its launches cost. A search that stops by itself leaves the rest of its share to the others; one
that has used its share waits for that as long as another goes on. As with a strategy, what is left follows from the
history alone, so that a resumed sweep goes on as if it had not been interrupted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokenpeak.errors import PlanError
from tokenpeak.ranking.objective import metric_direction
from tokenpeak.records import Plan
from tokenpeak.search.grid import Grid
from tokenpeak.search.highest import Highest, climbers
from tokenpeak.search.history import Finished, Outcome, Proposal, Strategy, Wait
from tokenpeak.spec.sweep import SearchSpec, SweepSpec


def make_strategy(search: SearchSpec, plan: Plan, *, metric: str = "output_tok_per_s") -> Strategy:
    """The strategy that the spec asks for, over one hardware's plan; `metric` is the objective.

    Every hardware has a strategy of its own, whose history holds that hardware's trials alone.
    """
    if not plan.feasible:
        raise PlanError(f"Nothing to search on {plan.hardware}: every config of the matrix was dropped.")
    if climbers(plan):
        return Highest(search, plan, lambda left, searched: make_strategy(left, searched, metric=metric))
    direction = metric_direction(metric)
    if search.strategy == "adaptive":
        # Imported here: its model of the space costs a second of processor time that a grid does not need.
        from tokenpeak.search.adaptive import Adaptive

        return Adaptive(search, plan, metric=metric, direction=direction)
    return Grid(search, plan, direction=direction)


Histories = Mapping[str, Sequence[Outcome]]
Pending = Mapping[str, Collection[tuple[str, int]]]


_SMALLEST_GPU_HOURS = 1e-6
"""A share that is used up; a limit is above 0."""


@dataclass(frozen=True, kw_only=True)
class _Used:
    """What a search has used of the budget."""

    trials: int
    gpu_hours: float


class Searches:
    """The searches by their hardware's label; raises PlanError for a budget of fewer trials than kinds of hardware."""

    def __init__(self, spec: SweepSpec, plans: Iterable[Plan]) -> None:
        self._search = spec.search
        self._metric = spec.objective.metric
        self._plans = {plan.hardware: plan for plan in plans}
        self._is_shared = spec.search.budget == "per_sweep" and len(self._plans) > 1
        self._stopped: dict[str, _Used] = {}
        """Searches that want no more trials, or whose nodes are all gone, and what they used."""
        trials = spec.search.trials
        if self._is_shared and trials is not None and trials < len(self._plans):
            raise PlanError(
                f"search.trials is {trials} for the whole sweep, which is less than one trial for each of its "
                f"{len(self._plans)} kinds of hardware: raise it, or set search.budget to per_hardware."
            )
        self._made: dict[str, tuple[SearchSpec, Strategy]] = {}
        self._limits: dict[str, SearchSpec] = {}
        self._limits = self._shared_out({})

    @property
    def limits(self) -> dict[str, SearchSpec]:
        """Each search with the trials and GPU-hours that it has now."""
        return dict(self._limits)

    def settle(self, histories: Histories) -> None:
        """See which searches have stopped by themselves, of a sweep that goes on."""
        if not self._is_shared:
            return
        for hardware in self._plans:
            if histories[hardware] and not self._wants_more(hardware, histories[hardware]):
                self._stop(hardware, histories)

    def propose(
        self, hardware: str, histories: Histories, pending: Pending, node: str = ""
    ) -> Proposal | Wait | Finished:
        """The next trial of this hardware, as `Strategy.propose` has it; Wait also while others may leave it some.

        Finished is the last word on this hardware unless something is pending there.
        """
        answer = self.strategy(hardware).propose(histories[hardware], pending[hardware], node)
        if not self._is_shared or not isinstance(answer, Finished) or pending[hardware]:
            return answer
        going_on = [other for other in self._plans if self._is_searching(other, histories, pending)]
        for other in self._plans:
            if other not in going_on and not self._wants_more(other, histories[other]):
                self._stop(other, histories)
        answer = self.strategy(hardware).propose(histories[hardware], (), node)
        if isinstance(answer, Finished) and hardware not in self._stopped and going_on:
            reason = "its share of the budget is used, and another search may leave some of its own"
            return Wait(reason=reason, gives_back=True)
        return answer

    def leave(self, hardware: str, histories: Histories) -> None:
        """No node of this hardware makes trials any more: what is left of its share is for the others."""
        if self._is_shared:
            self._stop(hardware, histories)

    def _is_searching(self, hardware: str, histories: Histories, pending: Pending) -> bool:
        """Whether trials of this hardware run or are to come within its share."""
        if hardware in self._stopped:
            return False
        if pending[hardware]:
            return True
        return not isinstance(self.strategy(hardware).propose(histories[hardware], ()), Finished)

    def _wants_more(self, hardware: str, history: Sequence[Outcome]) -> bool:
        """Whether the search would go on if the budget were larger."""
        unlimited = self._search.model_copy(update={"trials": None, "gpu_hours": None})
        strategy = make_strategy(unlimited, self._plans[hardware], metric=self._metric)
        return not isinstance(strategy.propose(history, ()), Finished)

    def _stop(self, hardware: str, histories: Histories) -> None:
        if hardware not in self._stopped:
            self._stopped[hardware] = self._used(hardware, histories[hardware])
            self._limits = self._shared_out(histories)

    def strategy(self, hardware: str) -> Strategy:
        """The search of this hardware with what it has of the budget now."""
        search = self._limits[hardware]
        if hardware not in self._made or self._made[hardware][0] != search:
            self._made[hardware] = search, make_strategy(search, self._plans[hardware], metric=self._metric)
        return self._made[hardware][1]

    def _used(self, hardware: str, history: Sequence[Outcome]) -> _Used:
        if not history:
            return _Used(trials=0, gpu_hours=0.0)
        gpu_s = sum(outcome.duration_s for outcome in history) * self._plans[hardware].gpus
        return _Used(trials=self.strategy(hardware).trials_made(history), gpu_hours=gpu_s / 3600)

    def _shared_out(self, histories: Histories) -> dict[str, SearchSpec]:
        """The limits of each search: what the stopped ones have not used is the others'."""
        if not self._is_shared:
            return dict.fromkeys(self._plans, self._search)
        going_on = [hardware for hardware in self._plans if hardware not in self._stopped]
        used = {hardware: self._used(hardware, histories.get(hardware, ())) for hardware in going_on}
        limits = dict.fromkeys(going_on, self._search)
        if self._search.trials is not None:
            left = self._search.trials - sum(each.trials for each in self._stopped.values())
            parts = _split(left, dict.fromkeys(going_on, 1.0), {name: each.trials for name, each in used.items()})
            for name, trials in _whole(parts, left).items():
                limits[name] = limits[name].model_copy(update={"trials": max(1, trials)})
        if self._search.gpu_hours is not None:
            rest = self._search.gpu_hours - sum(each.gpu_hours for each in self._stopped.values())
            shares = _split(rest, self._costs(going_on), {name: each.gpu_hours for name, each in used.items()})
            for name, gpu_hours in shares.items():
                limits[name] = limits[name].model_copy(update={"gpu_hours": max(_SMALLEST_GPU_HOURS, gpu_hours)})
        return limits | {hardware: self._limits[hardware] for hardware in self._stopped}

    def _costs(self, hardware: Collection[str]) -> dict[str, float]:
        """What a launch costs on each kind of hardware in proportion to the others; by GPUs where nobody knows more."""
        plans = [self._plans[name] for name in hardware]
        are_estimated = all(plan.estimated_trial_s for plan in plans)
        return {
            plan.hardware: plan.gpus * ((plan.estimated_trial_s or 1.0) if are_estimated else 1.0) for plan in plans
        }


def _split(total: float, weights: Mapping[str, float], least: Mapping[str, float]) -> dict[str, float]:
    """The total in proportion to the weights; whoever has more than its part keeps that, its least."""
    shares: dict[str, float] = {}
    open_ = dict(weights)
    left = total
    while open_:
        whole = sum(open_.values())
        over = [name for name, weight in open_.items() if least[name] > left * weight / whole]
        if not over:
            return shares | {name: left * weight / whole for name, weight in open_.items()}
        for name in over:
            shares[name] = least[name]
            left -= least[name]
            del open_[name]
    return shares


def _whole(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """The shares as whole numbers of the same sum; the largest fractions are rounded up."""
    whole = {name: int(share) for name, share in shares.items()}
    order = sorted(shares, key=lambda name: whole[name] - shares[name])
    for name in order[: max(0, total - sum(whole.values()))]:
        whole[name] += 1
    return whole
