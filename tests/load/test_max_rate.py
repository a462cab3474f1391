"""The search against a capacity model with noise, in virtual time."""

from collections.abc import Callable

import numpy as np
import pytest

from tokenpeak.load.max_rate import Found, Probe, Search, Try, growth, percentile_spread
from tokenpeak.load.rate_search import BEYOND_DOUBT
from tokenpeak.load.virtual import virtual_case


def search(
    metric: Callable[[float], float], start: float, noise: float = 0.0, **keys: float
) -> tuple[Found, list[Probe]]:
    random = np.random.default_rng(1)
    probes: list[Probe] = []
    spec = Search(start_per_s=start, **keys)  # type: ignore[arg-type]
    while isinstance(step := spec.step(probes), Try):
        probes.append(
            Probe(
                rate_per_s=step.rate_per_s,
                requests=1000 if step.confirming else 200,
                ratio=metric(step.rate_per_s) * np.exp(random.normal(0, noise)),
                spread=noise,
            )
        )
    return step, probes


def hockey_stick(rate: float) -> float:
    """Exactly the limit at 90/s, never served beyond 100/s."""
    return 0.2 + 0.8 * (rate / (100 - rate)) / 9 if rate < 99.9 else 50.0


@pytest.mark.parametrize("start", [30.0, 90.0, 270.0])
def test_finds_the_rate(start: float) -> None:
    """From a start off by three, the rate is found within 5% in at most eight noiseless probes."""
    found, probes = search(hockey_stick, start)

    assert found.rate_per_s == pytest.approx(90, rel=0.05)
    assert len(probes) <= 8


def test_answer_is_an_interval() -> None:
    """The interval holds the rate, and is as narrow as was asked."""
    found, _ = search(hockey_stick, 60, noise=0.05)

    assert found.low_per_s is not None
    assert found.high_per_s is not None
    assert found.low_per_s <= 90 <= found.high_per_s
    assert found.high_per_s / found.low_per_s < 1.2


def test_nothing_holds() -> None:
    """A limit that no rate meets is unreachable, and no rate is given."""
    found, _ = search(lambda rate: 3.0, 10, max_probes=40)

    assert ("unreachable", None) == (found.ended, found.rate_per_s)


def test_everything_holds() -> None:
    """A server without a limit in reach is unbounded: the highest rate tried is a lower bound."""
    found, _ = search(lambda rate: 0.1, 10, max_probes=40)

    assert ("unbounded", None) == (found.ended, found.high_per_s)


def test_budget_ends_it() -> None:
    """Out of budget, the answer is what is known by then."""
    probes = [
        Probe(rate_per_s=50, requests=200, ratio=0.5, spread=0.1),
        Probe(rate_per_s=100, requests=200, ratio=4.0, spread=0.1),
    ]

    answer = Search(start_per_s=50).step(probes, out_of_budget=True)
    assert isinstance(answer, Found)
    assert "budget" == answer.ended


def test_spread_knows_fewer_from_more() -> None:
    """The standard error of a percentile falls with the number of requests."""
    random = np.random.default_rng(0)
    few, many = (
        percentile_spread(random.exponential(1, number), 99, np.random.default_rng(1)) for number in (300, 30_000)
    )

    assert many < few / 3


def test_seeded_cases() -> None:
    """Over seeded cases the rate is within 5% in at least 95%, with a median of at most eight probes."""
    cases = [virtual_case(seed) for seed in range(60)]

    assert np.mean([abs(case.error) <= 0.05 for case in cases]) >= 0.95
    assert np.median([len(case.probes) for case in cases]) <= 8


@pytest.mark.parametrize("overload", [0.03, 0.10])
def test_growth_of_an_overload_is_seen(overload: float) -> None:
    """A backlog that grows with an overload is found at its slope, long before it reaches a limit."""
    random = np.random.default_rng(5)
    due = np.arange(600) / 150
    delays = 0.03 + overload * due + random.exponential(0.005, due.size)

    slope, error = growth(due, delays)

    assert slope == pytest.approx(overload, rel=0.15)
    assert slope > BEYOND_DOUBT * error


def test_a_queue_below_capacity_does_not_grow() -> None:
    """A queue that comes and goes (Poisson arrivals at 90% of capacity) passes for growth in few runs of many."""
    random = np.random.default_rng(6)
    grew = 0
    for _ in range(200):
        due = np.cumsum(random.exponential(1 / 90, 1000))
        served = np.empty(due.size)
        free = 0.0
        for number, moment in enumerate(due):
            free = max(free, moment) + 0.01
            served[number] = free
        slope, error = growth(due, served - due)
        grew += slope > BEYOND_DOUBT * error

    assert grew / 200 <= 0.02


def test_too_few_requests_do_not_tell_growth() -> None:
    """A handful of requests says nothing of growth."""
    assert growth(np.arange(20.0), np.arange(20.0)) == (0.0, np.inf)
