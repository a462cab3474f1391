"""Outline of a plan in one line: what the sweep will launch, how long it takes, and what production pays."""

from datetime import date, datetime, timedelta
from math import ceil

from tokenpeak.plan.estimate import Estimate
from tokenpeak.records import Plan
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.window import parse_window

_KINDS = {"grid": "a grid", "random": "a random search", "adaptive": "an adaptive search"}


def outline(spec: SweepSpec, plan: Plan, cost: Estimate, grid: Estimate) -> str:
    """What the sweep does on one kind of hardware; beside it the cost of the `grid`, where that is not what it is."""
    nodes = ", ".join(plan.nodes)
    away = cost.trials if spec.restore == "per_trial" else min(cost.trials, len(plan.nodes))
    said = (
        f"{_KINDS[spec.search.strategy]} makes {_count(cost.trials, 'launch', 'launches')} with "
        f"{_count(len(plan.feasible), 'config', 'configs')} to choose from, in {duration_text(cost.duration_s)}; "
        f"production of {nodes} is stopped {_count(away, 'time', 'times')}, "
        f"for {duration_text(cost.production_downtime_s)} in all"
    )
    if spec.window is not None and cost.duration_s:
        nights = ceil(cost.duration_s / window_s(spec.window))
        said += f"; fits {_count(nights, 'night', 'nights')} of {spec.window}"
    if spec.search.strategy == "adaptive" and grid.trials > cost.trials:
        said += f". search: {{strategy: grid}} would make {grid.trials} launches in {duration_text(grid.duration_s)}"
    return said


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
