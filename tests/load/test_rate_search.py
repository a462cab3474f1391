"""The search for the highest rate, on a server in virtual time."""

from array import array
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest

from load.replies import reply
from tokenpeak.errors import LoadError
from tokenpeak.load import rows
from tokenpeak.load.arrivals import timetable
from tokenpeak.load.crew import Observation
from tokenpeak.load.offered import Offered
from tokenpeak.load.order import Stop
from tokenpeak.load.rate_search import RateFound, search_rate
from tokenpeak.workload import LoadLevel, MaxRateLoad, OpenLoad, Slo

SINGLE = {"output_tokens": 1, "events": 1, "event_times_us": array("i")}


class Queue:
    """Serves one request after the other, each in `service_s`, and fails every `failing`-th; nothing waits."""

    def __init__(self, service_s: float, failing: int | None = None, stopped: Callable[[float], bool] | None = None):
        self.service_s, self.failing = service_s, failing
        self.stopped = stopped or (lambda _: False)
        self.rates: list[float] = []
        self.stops: list[Stop | None] = []

    def __call__(self, level: LoadLevel, stop: Stop | None) -> Offered:
        opened = isinstance(level, OpenLoad)
        due = timetable(level, 1) if opened else [self.service_s * number for number in range(level.requests or 0)]
        self.stops.append(stop)
        rate = level.rate_per_s if opened else 0.0
        self.rates.append(rate)
        free, replies = 0.0, []
        for number, moment in enumerate(due):
            free = max(free, moment) + self.service_s
            error = "reset" if self.failing and number % self.failing == 0 else None
            replies.append(reply(number, moment, first_token_s=free, last_token_s=free, error=error, **SINGLE))
        seen = Observation(
            replies=tuple(replies),
            lags=(),
            start=0.0,
            wall_s=free,
            cpu_s=0.0,
            busiest_share=0.0,
            processes=1,
            stopped="the SLO was missed beyond doubt" if self.stopped(rate) else None,
        )
        table = rows.table(replies, 0, level.warmup_requests)
        return Offered(level=level, seen=seen, samples=[], drained=True, table=table, began_at=datetime.now(UTC))


def found_on(server: Queue, slo: Slo, **keys: object) -> RateFound:
    level = MaxRateLoad.model_validate({"max_rate_under": slo, "arrivals": "constant", **keys})
    return search_rate(level, 7, server, origin_s=0.0)


def test_overload_is_found_before_its_backlog_spends_the_limit() -> None:
    """5% over capacity, 1000 requests wait half a second at most; a limit of one is missed all the same, in time."""
    found = found_on(Queue(0.01), Slo(ttft_p99_ms=1000), start_rate_per_s=60).max_rate

    assert found.rate_per_s == pytest.approx(100, rel=0.05)
    assert all(not probe.holds for probe in found.probes if probe.rate_per_s > 105)


def test_failed_request_is_one_that_took_for_ever() -> None:
    """With one failure in ten no rate holds a p95, however fast the others were; a p50 is not moved."""
    strict, lenient = (
        found_on(Queue(0.001, failing=10), Slo(**{limit: 1000}), start_rate_per_s=100, max_probes=3).max_rate
        for limit in ("latency_p95_ms", "latency_p50_ms")
    )

    assert (None, {None}) == (strict.rate_per_s, {probe.ratio for probe in strict.probes})
    assert all(probe.holds for probe in lenient.probes)


def test_a_limit_on_what_answers_do_not_have_is_held() -> None:
    """Answers of one token have no time per further token: a limit on it does not keep every rate from holding."""
    slo = Slo(ttft_p95_ms=1000, tpot_p95_ms=50, itl_p95_ms=50)
    found = found_on(Queue(0.01, failing=100), slo, start_rate_per_s=60, max_probes=4).max_rate

    assert found.probes[0].holds
    assert {"ttft_s_p95"} == set(found.probes[0].metrics)


def test_probe_that_was_stopped_did_not_hold() -> None:
    """What ended in time before a probe was stopped were the lucky ones: it misses by at least twice."""
    server = Queue(0.001, stopped=lambda rate: rate > 50)
    found = found_on(server, Slo(ttft_p99_ms=1000), start_rate_per_s=80, max_probes=4).max_rate

    assert [probe.rate_per_s > 50 for probe in found.probes] == [probe.stopped_early for probe in found.probes]
    assert [not probe.stopped_early for probe in found.probes] == [probe.holds for probe in found.probes]
    assert all((probe.ratio or 0) >= 2 for probe in found.probes if probe.stopped_early)


def test_search_begins_at_what_requests_one_by_one_tell() -> None:
    """Without a start, five requests one after another give it; a server that answers none of them is an error."""
    server = Queue(0.02)
    found_on(server, Slo(ttft_p50_ms=100), max_probes=1)

    assert [0.0, 200.0] == pytest.approx(server.rates)
    with pytest.raises(LoadError, match=r"None of the first 5 requests ended well \(reset\)"):
        found_on(Queue(0.02, failing=1), Slo(ttft_p50_ms=100))


def test_limits_say_when_a_probe_is_lost() -> None:
    """A probe is stopped by more requests over the widest limit than three times what its percentile allows."""
    server = Queue(0.001)
    slo = Slo(ttft_p50_ms=100, ttft_p99_ms=400, latency_p99_ms=900)
    found_on(server, slo, start_rate_per_s=100, max_probes=1, screening_requests=200)

    assert [Stop(violations=303, ttft_s=0.4, latency_s=0.9)] == server.stops


def test_longest_probe_that_held_is_the_runs_own() -> None:
    """Its requests are the measured ones; those of the other probes are marked as such."""
    found = found_on(Queue(0.01), Slo(ttft_p99_ms=1000), start_rate_per_s=60)
    phases = dict(found.table.group_by("phase").len().iter_rows())
    level = found.best.level
    assert isinstance(level, OpenLoad)
    held = [probe for probe in found.max_rate.probes if probe.holds]
    most = max(probe.requests or 0 for probe in held)

    assert level.rate_per_s == max(probe.rate_per_s for probe in held if probe.requests == most)
    assert (level.requests, level.warmup_requests) == (phases["measured"], phases["warmup"])
    assert np.isclose(phases["warmup"], 0.1 * phases["measured"])
