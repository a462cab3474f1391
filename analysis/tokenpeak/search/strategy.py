"""What a search is: a pure function from history and pending trials to the next trial.

A strategy holds no state of its own: the same history and pending trials give the same answer, so a resumed sweep
goes on as if it had not been interrupted, and a recorded sweep can be replayed.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from tokenpeak.errors import PlanError
from tokenpeak.metrics import metric_of
from tokenpeak.plan.highest import climbers
from tokenpeak.plan.spec import SearchSpec
from tokenpeak.records import Plan
from tokenpeak.search.grid import Grid
from tokenpeak.search.highest import Highest
from tokenpeak.search.history import Outcome, Proposal, Stop, Wait, next_replicate, outcome_of

__all__ = ["Outcome", "Proposal", "Stop", "Strategy", "Wait", "make_strategy", "next_replicate", "outcome_of"]


class Strategy(Protocol):
    """A search over one plan's configs."""

    def propose(self, history: Sequence[Outcome], pending: Collection[tuple[str, int]]) -> Proposal | Wait | Stop:
        """The next trial, from the trials that ended, in the order in which they ended, and those that run now.

        `pending` holds their (config_id, replicate). Interrupted trials count as never made. `Wait` is given only
        while something is pending.
        """
        ...

    def choose(self, history: Sequence[Outcome]) -> str | None:
        """The config to take by what these trials tell; None when none ran within the SLO."""
        ...


def make_strategy(search: SearchSpec, plan: Plan, *, metric: str = "output_tok_per_s") -> Strategy:
    """The strategy that the spec asks for, over one hardware's plan; `metric` is the objective.

    Every hardware has a strategy of its own, whose history holds that hardware's trials alone.
    """
    if not plan.feasible:
        raise PlanError(f"Nothing to search on {plan.hardware}: every config of the matrix was dropped.")
    if climbers(plan):
        return Highest(search, plan, lambda left, searched: make_strategy(left, searched, metric=metric))
    found = metric_of(metric)
    direction = found[0].direction if found else "neither"
    if search.strategy == "adaptive":
        # Imported here: its model of the space costs a second of processor time that a grid does not need.
        from tokenpeak.search.adaptive import Adaptive

        return Adaptive(search, plan, metric=metric, direction=direction)
    return Grid(search, plan, direction=direction)
