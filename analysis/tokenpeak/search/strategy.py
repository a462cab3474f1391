"""The strategy that a spec asks for."""

from tokenpeak.errors import PlanError
from tokenpeak.metrics import metric_of
from tokenpeak.plan.highest import climbers
from tokenpeak.records import Plan
from tokenpeak.search.grid import Grid
from tokenpeak.search.highest import Highest
from tokenpeak.search.history import Strategy
from tokenpeak.spec.search import SearchSpec


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
