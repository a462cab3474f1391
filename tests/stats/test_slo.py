"""How sure a kept SLO is: as sure as the requests make it, and no surer."""

import pytest

from tokenpeak.stats.slo import assurance, requests_to_be_sure, slo_confidence
from tokenpeak.workload import Slo


def test_too_few_requests_for_a_p99() -> None:
    """299 requests within a limit are the fewest that show a p99 with 95% confidence."""
    assert 299 == requests_to_be_sure(0.99)
    assert slo_confidence(298, 298, 0.99) < 0.95 <= slo_confidence(299, 299, 0.99)


def test_a_share_just_short_of_the_percentile_shows_nothing() -> None:
    """97 of 100 within the limit is no evidence for a p99."""
    assert slo_confidence(97, 100, 0.99) < 0.2


def test_an_slo_is_as_sure_as_its_least_sure_limit() -> None:
    """Of a p95 and a p99 held by all of 100 requests, the p99 is what is doubtful."""
    slo = Slo(ttft_p95_ms=500, tpot_p99_ms=50)

    assert pytest.approx(1 - 0.99**100) == assurance(slo, {"ttft_s_p95": 100, "tpot_s_p99": 100}, 100)


def test_a_limit_that_was_not_counted_gives_no_confidence() -> None:
    """A limit on gaps, a record of before counting, and no limits at all leave it open."""
    assert assurance(Slo(ttft_p95_ms=500, itl_p99_ms=50), {"ttft_s_p95": 100}, 100) is None
    assert assurance(Slo(ttft_p95_ms=500), {}, 100) is None
    assert assurance(Slo(), {}, 100) is None
