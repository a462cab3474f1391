"""Confidence of an SLO that was met: as much as the requests give."""

import pytest
from scipy import stats

from tokenpeak.ranking.intervals import assurance, requests_needed, slo_confidence
from tokenpeak.spec.slo import Slo


def test_too_few_requests_for_a_p99() -> None:
    """299 requests within a limit are the fewest that show a p99 with 95% confidence."""
    assert 299 == requests_needed(0.99)
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
