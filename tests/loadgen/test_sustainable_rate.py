"""The search for the sustainable rate on simulated servers of known capacity, in virtual time."""

import numpy as np
import pytest

from benchmarks.queue_servers import capacity, sustainable
from benchmarks.rate_cases import KINDS, SHARES, searched

pytestmark = pytest.mark.integration

FEW = ("8 slots, deterministic, tight", "8 slots, exponential, loose")
MAX_SECONDS = 240


@pytest.mark.parametrize("kind", FEW)
def test_rate_of_a_server(kind: str) -> None:
    """At 20 requests a second the answer is within 5%, below capacity, in at most ten probes and four minutes."""
    case = searched(kind, 1)

    assert abs(case.error) <= 0.05
    assert (case.answer.rate_per_s or 0) <= 1.01 * case.capacity_per_s
    assert len(case.probes) <= 10
    assert case.seconds <= MAX_SECONDS


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("4 slots, deterministic, loose", marks=pytest.mark.integration),
        *(pytest.param(kind, marks=pytest.mark.e2e) for kind in KINDS),
    ],
)
def test_truth_of_a_kind(kind: str) -> None:
    """The rates that the answers are judged by are those of long simulations."""
    server, arriving, limits = KINDS[kind]

    assert SHARES[kind] == pytest.approx(sustainable(server, arriving, limits) / capacity(server), rel=0.01)


@pytest.mark.e2e
def test_two_hundred_cases() -> None:
    """The intervals hold the truth as often as they say, and no answer is above capacity."""
    cases = [searched(kind, seed) for kind in KINDS for seed in range(-(-200 // len(KINDS)))]

    assert 0.85 <= np.mean([case.covered for case in cases])
    assert np.mean([abs(case.error) <= 0.05 for case in cases]) >= 0.8
    assert all((case.answer.rate_per_s or 0) <= 1.01 * case.capacity_per_s for case in cases)
    assert np.median([len(case.probes) for case in cases]) <= 8
    assert max(len(case.probes) for case in cases) <= 10
    assert max(case.seconds for case in cases) <= 1.05 * MAX_SECONDS
