"""A run's metrics, by hand."""

from array import array

import pytest

from loadgen.replies import reply, steady
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.run import request_table
from tokenpeak.records import RunSummary
from tokenpeak.results.request_metrics import slo_met
from tokenpeak.results.run_summary import distribution, summarize, turn_summaries
from tokenpeak.spec.slo import Slo


def summary_of(*replies: Reply, slo: Slo | None = None, from_due: bool = False, warmup_requests: int = 0) -> RunSummary:
    return summarize(request_table(replies, 0, warmup_requests), slo or Slo(), from_due=from_due)


def test_metrics_follow_their_formulas() -> None:
    """TTFT, TPOT, latency and throughput of a run of equal requests are those of each."""
    summary = summary_of(*steady(4), slo=Slo(ttft_p50_ms=200))

    assert 0.1 == pytest.approx(summary.ttft_s.p50)
    assert 0.1 == pytest.approx(summary.tpot_s.p50)
    assert 0.5 == pytest.approx(summary.latency_s.p50)
    assert 0.1 == pytest.approx(summary.itl_s.p99)
    assert 20 == summary.output_tokens
    assert 1.25 == pytest.approx(summary.duration_s)
    assert 16.0 == pytest.approx(summary.output_tok_per_s)
    assert 10.0 == pytest.approx(summary.request_output_tok_per_s.p50)
    assert 3.2 == pytest.approx(summary.goodput_request_per_s)


def test_percentiles_lie_between_the_nearest_two() -> None:
    """Percentiles are linear, the standard deviation is the sample's, and nothing is said of no values."""
    found, one = distribution([4.0, 1.0, 3.0, 2.0]), distribution([7.0])

    assert 2.5 == pytest.approx(found.p50)
    assert 1.75 == pytest.approx(found.p25)
    assert 3.7 == pytest.approx(found.p90)
    assert 3.97 == pytest.approx(found.p99)
    assert 4 == found.n
    assert 2.5 == pytest.approx(found.mean)
    assert 1.2909944 == pytest.approx(found.std)
    assert 7.0 == one.p50
    assert 7.0 == one.p99
    assert one.std is None
    assert {None, 0} == set(distribution([]).model_dump().values())


def test_open_loop_counts_from_due_and_a_closed_one_from_sent() -> None:
    """A request that left 0.3 s after it was due waited 0.3 s longer where a rate was asked for."""
    late = reply(0, 0.3, due_s=0.0)
    closed, opened = summary_of(late), summary_of(late, from_due=True)

    assert 0.1 == pytest.approx(closed.ttft_s.p50)
    assert 0.5 == pytest.approx(closed.latency_s.p50)
    assert 10.0 == pytest.approx(closed.request_output_tok_per_s.p50)
    assert 0.4 == pytest.approx(opened.ttft_s.p50)
    assert 0.8 == pytest.approx(opened.latency_s.p50)
    assert 6.25 == pytest.approx(opened.request_output_tok_per_s.p50)


def test_only_measured_requests_that_ended_well_count() -> None:
    """A run lasts from when its first measured request was due; warm-up and failures are in no rate."""
    replies = [reply(0, 0.0), reply(1, 2.0), reply(2, 2.5), reply(3, 2.5, error="reset")]
    summary = summary_of(*replies, warmup_requests=1)

    assert 3 == summary.requests_sent
    assert 2 == summary.requests_ok
    assert 1 == summary.requests_failed
    assert {"reset": 1} == summary.failures
    assert 1.0 == pytest.approx(summary.duration_s)
    assert 10.0 == pytest.approx(summary.output_tok_per_s)
    assert 2.0 == pytest.approx(summary.request_per_s)


def test_tokens_are_counted_in_the_second_in_which_they_arrived() -> None:
    """Seconds begin with the run; a request's tokens are spread evenly over its events."""
    events = {"events": 2, "output_tokens": 4, "event_times_us": array("i", [900_000]).tobytes()}
    summary = summary_of(reply(0, 10.0, first_token_s=10.2, last_token_s=11.1, **events))

    assert (2.0, 2.0) == summary.windowed_output_tok_per_s
    assert 4.0 == summary.peak_output_tok_per_s


def test_peak_is_of_any_one_second() -> None:
    """The most tokens within a second, wherever it begins, and no longer."""
    single = {"output_tokens": 1, "events": 1, "event_times_us": b""}
    moments = (0.0, 1.5, 1.75, 2.25, 2.5)
    summary = summary_of(*(reply(index, at, first_token_s=at, **single) for index, at in enumerate(moments)))

    assert 3.0 == summary.peak_output_tok_per_s


def test_good_requests_hold_every_limit() -> None:
    """A limit on gaps is held by a request whose own p99 gap holds it, not by one whose mean gap does."""
    hiccup = reply(1, 0.0, event_times_us=array("i", [10_000, 10_000, 10_000, 370_000]).tobytes())
    slo = Slo(itl_p99_ms=200, ttft_p99_ms=150)
    summary = summary_of(reply(0, 0.0), hiccup, reply(2, 0.0, first_token_s=0.2), slo=slo)

    assert 2.0 == pytest.approx(summary.goodput_request_per_s)
    assert {"ttft_s_p99": 2} == summary.within_limits


def test_a_run_of_single_tokens_breaks_no_limit_on_what_follows() -> None:
    """Where no answer has a second token, limits on TPOT and ITL are held, unless no request ended well at all."""
    single = [
        reply(index, index, output_tokens=1, events=1, last_token_s=index + 0.1, event_times_us=b"")
        for index in range(20)
    ]
    failed = [reply(index, index, error="reset") for index in range(20)]
    slo = Slo(tpot_p95_ms=1, itl_p95_ms=1)

    assert (True, False) == tuple(slo_met(summary_of(*found, slo=slo), slo) for found in (single, failed))


def test_failed_and_slow_requests_violate_the_slo_together() -> None:
    """Four slow and four failed of a hundred are more than a p95 allows, though either four alone are not."""
    slow = [reply(index, 24.0, first_token_s=25.0, last_token_s=25.4) for index in range(92, 96)]
    failed = [reply(index, 24.0, error="reset") for index in range(96, 100)]
    slo = Slo(ttft_p95_ms=500)

    assert (True, True, False) == tuple(
        slo_met(summary_of(*steady(92), *bad, slo=slo), slo) for bad in (slow, failed, slow + failed)
    )


def test_too_few_requests_hold_no_percentile_and_may_break_it() -> None:
    """99 requests cannot show that a p99 holds; that it does not they can."""
    few = summary_of(*steady(99))

    assert (None, False, None) == tuple(slo_met(few, slo) for slo in (Slo(ttft_p99_ms=500), Slo(ttft_p99_ms=50), Slo()))
    assert slo_met(summary_of(*steady(100)), Slo(ttft_p99_ms=500)) is True


def test_turns_are_summed_apart() -> None:
    """Each turn of a run's conversations has its own metrics; single requests have none."""
    replies = [reply(0, 0.0, turn=0), reply(1, 0.0, turn=0), reply(2, 1.0, turn=1, input_tokens=30, first_token_s=1.3)]
    first, second = turn_summaries(request_table(replies, 0, 0), from_due=False)

    assert 0 == first.turn
    assert 2 == first.requests_ok
    assert 20 == first.input_tokens
    assert 0.1 == pytest.approx(first.ttft_s.p50)
    assert 1 == second.turn
    assert 1 == second.requests_ok
    assert 30 == second.input_tokens
    assert 0.3 == pytest.approx(second.ttft_s.p50)
    assert () == turn_summaries(request_table(steady(2), 0, 0), from_due=False)
