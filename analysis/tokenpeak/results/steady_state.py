"""Steady-state test of an open-loop run: steady, overloaded, or too short to say. Pure.

Requests in flight are counted over the run's arrivals. At a rate that the engine holds they come back to a level; where
it is overloaded they grow by a share of the arrivals, 1 − capacity ÷ rate. The growth is the mean step of their number
between stretches of the run, and its standard error follows from how the steps differ (Student's t). Overloaded: it
grew with a confidence of 99.5%. Steady: with that confidence it grew by less than the margin. Otherwise the run is too
short to say, and `requests_needed` says how long one has to be.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.records import RunState

Numbers = NDArray[np.float64]

MARGIN = 0.1
"""Overloads of this share of capacity and more are distinguished from steady runs."""
RUN_MARGIN = 0.3
"""The same for a run of a sweep, which 10% would take 8,300 requests. What is overloaded does not depend on it."""
CONFIDENCE = 0.995
STRETCHES = 16
SETTLING_SHARE = 0.1
"""Of a run's arrivals, how many are left out while the engine fills."""
FEWEST_REQUESTS = 64


@dataclass(frozen=True, kw_only=True)
class QueueGrowth:
    """What the test says. `growth` is the requests in flight that each arrival added; None with too few requests."""

    state: RunState
    growth: float | None
    error: float | None
    requests_needed: int
    """A run of so many requests distinguishes an overload of the margin from a steady run."""


def steady_state(due_s: Numbers, ended_s: Numbers, *, margin: float = MARGIN) -> QueueGrowth:
    """The state of a run whose requests were due and ended at these moments; one that never ended ends at inf."""
    by_due = np.argsort(due_s)
    due, ended = due_s[by_due], ended_s[by_due]
    number = int(due.size)
    begin = _settled(due, ended)
    if number - begin < FEWEST_REQUESTS:
        return QueueGrowth(state="too_short", growth=None, error=None, requests_needed=requests_needed(margin))
    marks = np.linspace(begin, number - 1, STRETCHES + 1).astype(int)
    in_flight = marks + 1 - np.searchsorted(np.sort(ended), due[marks], side="right")
    length = float(marks[-1] - marks[0]) / STRETCHES
    steps = np.diff(in_flight.astype(np.float64))
    growth = float(steps.mean()) / length
    # A step is a whole number of requests, so it is not known better than that.
    spread = float(np.hypot(steps.std(ddof=1), 0.5))
    error = spread / np.sqrt(STRETCHES) / length
    from scipy.special import stdtrit

    within = float(stdtrit(STRETCHES - 1, CONFIDENCE)) * error
    state: RunState = "too_short"
    if growth > within:
        state = "overloaded"
    elif growth + within < margin / (1 + margin):
        state = "steady"
    variance = spread**2 / length
    return QueueGrowth(state=state, growth=growth, error=error, requests_needed=requests_needed(margin, variance))


def _settled(due: Numbers, ended: Numbers) -> int:
    """The first arrival after the engine has filled: after a tenth of them, and after the first ones' latency."""
    if not due.size:
        return 0
    first = (ended - due)[: max(1, due.size // 5)]
    latency = float(np.quantile(first[np.isfinite(first)], 0.9)) if np.isfinite(first).any() else 0.0
    return max(int(SETTLING_SHARE * due.size), int(np.searchsorted(due, due[0] + latency)))


def requests_needed(margin: float = MARGIN, variance: float = 2.0) -> int:
    """The requests after which an overload of `margin` shows, 99 times in 100.

    `variance` is that of the number in flight per arrival: the squared variations of gaps and of service times,
    together 2 for Poisson arrivals and exponential service. The growth's standard error over n requests is
    √(variance ÷ n).
    """
    growth = margin / (1 + margin)
    from scipy.special import stdtrit

    errors = float(stdtrit(STRETCHES - 1, CONFIDENCE) + stdtrit(STRETCHES - 1, 0.99))
    return int(np.ceil(variance * (errors / growth) ** 2 / (1 - SETTLING_SHARE)))


def relaxation_requests(load: float, variance: float = 2.0) -> float:
    """Requests after which a queue at a share `load` of capacity has forgotten how it began: variance ÷ (1 − load)²."""
    return variance / max(1 - load, 1e-6) ** 2
