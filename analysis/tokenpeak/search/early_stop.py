"""Early stop: the threshold beyond which the rest of a trial's runs is left out.

Launching dominates, so a launch always measures its objective; an early stop saves the rest of its load.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from tokenpeak.ranking.intervals import variance
from tokenpeak.search.history import Outcome

MARGINS = 3
"""A config behind the best by so many margins is of no interest, whatever the confidence."""
DEVIATIONS = 3
"""How many standard deviations of the difference between two launches come on top."""
EXPECTED_NOISE, EXPECTED_WORTH = 0.05, 2
"""What launches are thought to vary by (log) until they are seen to, and how many of them that counts for."""


def early_stop_threshold(history: Sequence[Outcome], *, margin: float, sign: float) -> float | None:
    """The objective beyond which a trial stops early: far behind the best so far; None before there is a best.

    Worse by three margins, and by what two launches may differ by besides: windows of a run would show how steady that
    launch was, and nothing of the next. `sign` is −1 where the objective is to be low.
    """
    values: dict[str, list[float]] = {}
    for outcome in history:
        if outcome.feasible and outcome.value is not None and outcome.value > 0:
            values.setdefault(outcome.config_id, []).append(sign * math.log(outcome.value))
    if not values:
        return None
    again = [launches for launches in values.values() if len(launches) > 1]
    squares = sum(variance(launches) * (len(launches) - 1) for launches in again)
    freedom = sum(len(launches) - 1 for launches in again)
    noise = math.sqrt((EXPECTED_WORTH * EXPECTED_NOISE**2 + squares) / (EXPECTED_WORTH + freedom))
    best = max(fmean(launches) for launches in values.values())
    return math.exp(sign * (best - MARGINS * math.log1p(margin) - DEVIATIONS * math.sqrt(2) * noise))
