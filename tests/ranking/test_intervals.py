"""Intervals have the coverage that they state."""

import math

import numpy as np
import pytest
from scipy import stats

from tokenpeak.ranking.intervals import (
    assurance,
    range_critical,
    ratio_interval,
    requests_to_assure,
    slo_confidence,
    spreads,
)
from tokenpeak.spec.slo import Slo


def test_single_launches_have_no_bounds() -> None:
    """One launch on each side gives an estimate and no bounds; one on one side borrows the other's spread."""
    assert ratio_interval([2.0], [1.0]).low is None
    assert ratio_interval([2.0], [1.0, 1.1]).low is not None


def test_known_welch_interval() -> None:
    """The interval is that of SciPy's Welch test on logarithms, whose degrees of freedom follow from both spreads."""
    first, second = [1.0, 1.1, 1.3], [2.0, 2.01, 2.02, 2.0]
    found = ratio_interval(first, second)
    expected = stats.ttest_ind(np.log(first), np.log(second), equal_var=False).confidence_interval(0.95)

    assert pytest.approx(np.exp([expected.low, expected.high])) == (found.low, found.high)


@pytest.mark.parametrize(
    ("means", "freedom", "confidence"), [(2, 4, 0.95), (3, 1, 0.95), (10, 10, 0.99), (40, 80, 0.9)]
)
def test_critical_value_is_scipys(means: int, freedom: int, confidence: float) -> None:
    """From two launches to forty configs."""
    expected = stats.studentized_range.ppf(confidence, means, freedom)

    assert expected == pytest.approx(range_critical(means, freedom, confidence), rel=1e-6)


def test_too_few_requests_for_a_p99() -> None:
    """299 requests within a limit are the fewest that show a p99 with 95% confidence."""
    assert 299 == requests_to_assure(0.99)
    assert slo_confidence(298, 298, 0.99) < 0.95 <= slo_confidence(299, 299, 0.99)


@pytest.mark.parametrize("percentile", [0.5, 0.95, 0.99])
@pytest.mark.parametrize(("within", "n"), [(0, 5), (1, 1), (50, 100), (197, 200), (1980, 2000), (49600, 50000)])
def test_confidence_is_the_binomial_tail_that_scipy_gives(within: int, n: int, percentile: float) -> None:
    """From one request to fifty thousand, above and below the percentile."""
    expected = 1 - stats.binom.sf(within - 1, n, percentile)

    assert pytest.approx(expected, abs=1e-9) == slo_confidence(within, n, percentile)


def test_confidence_of_an_slo_is_that_of_its_weakest_limit() -> None:
    """Of a p95 and a p99 held by all of 100 requests, the p99 is what is doubtful."""
    slo = Slo(ttft_p95_ms=500, tpot_p99_ms=50)

    assert pytest.approx(1 - 0.99**100) == assurance(slo, {"ttft_s_p95": 100, "tpot_s_p99": 100}, 100)


def test_a_limit_that_was_not_counted_gives_no_confidence() -> None:
    """A limit on gaps, a record of before counting, and no limits at all leave it open."""
    assert assurance(Slo(ttft_p95_ms=500, itl_p99_ms=50), {"ttft_s_p95": 100}, 100) is None
    assert assurance(Slo(ttft_p95_ms=500), {}, 100) is None
    assert assurance(Slo(), {}, 100) is None


def drawn(deviations: np.ndarray, launches: int, draw: np.random.Generator) -> dict[int, list[list[float]]]:
    """Launches of configs of these standard deviations of the log value."""
    return {number: [list(np.exp(draw.normal(3, deviation, launches)))] for number, deviation in enumerate(deviations)}


def test_configs_that_vary_unlike_keep_their_own() -> None:
    """A config ten times as noisy as the others is seen to be: no spread is borrowed from it, none lent to it."""
    draw = np.random.default_rng(6)
    found = spreads(drawn(np.array([0.01] * 30 + [0.1]), 8, draw))

    assert 0.05 < found[30].deviation < 0.2
    assert max(found[number].deviation for number in range(30)) < 0.02
    assert found[30].freedom < 60


def test_freedom_is_what_the_spread_is_worth() -> None:
    """Over many draws, the moderated variance scatters around the truth as its degrees of freedom say."""
    draw = np.random.default_rng(7)
    ratios, freedoms = [], []
    for _ in range(400):
        true = np.exp(draw.normal(math.log(0.03), 0.4, 8))
        found = spreads(drawn(true, 4, draw))
        ratios += [(found[number].deviation / true[number]) ** 2 for number in range(8)]
        freedoms += [found[number].freedom for number in range(8)]

    assert 1.0 == pytest.approx(np.median(ratios), abs=0.15)
    # The variance of chi-squared ÷ freedom is 2 ÷ freedom.
    assert np.var(np.log(ratios)) < 2.5 * np.mean(2 / np.array(freedoms))


def test_nothing_repeated_is_nothing_known() -> None:
    """Single launches have no spread; a config launched once takes that of the others."""
    assert {} == spreads({"a": [[1.0]], "b": [[2.0]]})
    assert 0.0 == spreads({"a": [[2.0, 2.0]], "b": [[3.0, 3.0]], "c": [[5.0]]})["c"].deviation
