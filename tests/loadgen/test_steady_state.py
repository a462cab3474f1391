"""The steady-state test against simulated servers below and above their capacity."""

import heapq
from collections import Counter

import numpy as np
import pytest

from benchmarks.queue_servers import Slots, Works, arrivals
from tokenpeak.results.steady_state import (
    open_loop_requests,
    percentile_interval,
    steady_state,
)
from tokenpeak.spec.load import OpenLoad
from tokenpeak.spec.slo import Slo


def heap_served(due: np.ndarray, works: np.ndarray, slots: int) -> np.ndarray:
    """When each request ends that comes first to be served first, on so many slots."""
    free = [0.0] * slots
    ended = np.empty(due.size)
    for number, (moment, work) in enumerate(zip(due, works, strict=True)):
        ended[number] = max(moment, heapq.heappop(free)) + work
        heapq.heappush(free, float(ended[number]))
    return ended


@pytest.mark.parametrize("runs", [60, pytest.param(1000, marks=pytest.mark.e2e)])
@pytest.mark.parametrize(("slots", "shape"), [(8, 1.0), (32, 4.0)])
def test_runs_as_long_as_a_plan_asks_for_answer_rightly(runs: int, slots: int, shape: float) -> None:
    """At 30% below capacity at most 1% pass for overloaded, at 30% above as few for steady, and almost none is vague.

    The queue is simulated here: service times of gamma form on slots, under Poisson arrivals.
    """
    random = np.random.default_rng([slots, runs])
    found: dict[float, Counter[str]] = {1 / 1.3: Counter(), 1.3: Counter()}
    for load, states_seen in found.items():
        rate = load * slots
        number = open_loop_requests(OpenLoad(rate_per_s=rate, requests=1), Slo(ttft_p95_ms=500))
        for _ in range(runs):
            due = np.cumsum(random.exponential(1 / rate, number))
            ended = heap_served(due, random.gamma(shape, 1 / shape, number), slots)
            states_seen[steady_state(due, ended).state] += 1
    below, above = found.values()

    assert below["overloaded"] <= max(1, 0.01 * runs), below
    assert above["steady"] <= max(1, 0.01 * runs), above
    assert below["steady"] >= 0.95 * runs, below
    assert above["overloaded"] >= 0.95 * runs, above


def test_short_runs_say_so() -> None:
    """Two hundred requests near capacity show nothing, and say how many would."""
    random = np.random.default_rng(3)
    served = Slots(8, Works("exponential")).serve(arrivals("poisson", 200, random) / 8.2, random)
    found = steady_state(served.due_s, served.last_s)

    assert "too_short" == found.state
    assert found.requests_needed > 500


def test_requests_that_never_end_are_in_flight() -> None:
    """A server that stops answering is overloaded, though no request of it is slow."""
    due = np.arange(600) / 10
    ended = np.where(due < 20, due + 0.1, np.inf)

    assert "overloaded" == steady_state(due, ended).state


def latencies(load: float, number: int, random: np.random.Generator) -> np.ndarray:
    """Of a single server with exponential service of mean 1 under Poisson arrivals (Lindley's recursion)."""
    steps = np.cumsum(random.exponential(1.0, number) - random.exponential(1 / load, number))
    waits = steps - np.minimum.accumulate(np.minimum(steps, 0))
    return np.asarray(waits + random.exponential(1.0, number))


@pytest.mark.parametrize(("load", "share", "number"), [(0.5, 0.95, 1300), (0.5, 0.5, 400), (0.8, 0.95, 4000)])
def test_intervals_hold_the_percentile(load: float, share: float, number: int) -> None:
    """Of runs at half and at four fifths of capacity, nine in ten at least; requests that wait resemble each other."""
    random = np.random.default_rng(7)
    long = latencies(load, 1_000_000, random)[1000:]
    truth = float(np.quantile(long, share))
    held = 0
    for begin in random.integers(0, long.size - number, 100):
        low, high = percentile_interval(long[begin : begin + number], share)
        held += (low is None or low <= truth) and (high is None or truth <= high)

    assert held >= 88
