"""The search for the sustainable rate on a server, in virtual time."""

from datetime import UTC, datetime

import numpy as np
import pytest

from loadgen.replies import reply
from tokenpeak.errors import LoadError
from tokenpeak.loadgen.arrivals import timetable
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.rate.probing import RateFound, search_rate
from tokenpeak.loadgen.run import request_table
from tokenpeak.loadgen.workers.messages import LoadObservation
from tokenpeak.loadgen.workers.pool import Offered
from tokenpeak.spec.load import ClosedLoad, LoadLevel, MaxRateLoad, OpenLoad
from tokenpeak.spec.slo import Slo

SINGLE = {"output_tokens": 1, "events": 1, "event_times_us": b""}


class Queue:
    """Serves one request after the other, each in `service_s`, and fails every `failing`-th; nothing waits."""

    def __init__(self, service_s: float, failing: int | None = None):
        self.service_s, self.failing = service_s, failing
        self.levels: list[LoadLevel] = []

    def __call__(self, level: LoadLevel) -> Offered:
        self.levels.append(level)
        if isinstance(level, OpenLoad):
            due = timetable(level, 1)
        else:
            assert isinstance(level, ClosedLoad)
            number = min(level.requests or 0, int((level.duration_s or np.inf) / self.service_s))
            due = tuple(max(0, index + 1 - level.concurrency) * self.service_s for index in range(number))
        free, replies = 0.0, list[Reply]()
        for number, moment in enumerate(due):
            free = max(free, moment) + self.service_s
            error = "reset" if self.failing and number % self.failing == 0 else None
            replies.append(reply(number, moment, first_token_s=free, last_token_s=free, error=error, **SINGLE))
        observed = LoadObservation(
            replies=tuple(replies),
            lags=(),
            start=0.0,
            wall_s=free,
            cpu_s=0.0,
            busiest_share=0.0,
            processes=1,
            stopped=None,
        )
        table = request_table(replies, 0, level.warmup_requests)
        return Offered(level=level, seen=observed, samples=[], drained=True, table=table, began_at=datetime.now(UTC))


def found_on(server: Queue, slo: Slo, **keys: object) -> RateFound:
    level = MaxRateLoad.model_validate({"max_rate_under": slo, "arrivals": "constant", **keys})
    return search_rate(level, server, origin_s=0.0)


def test_rate_is_below_what_the_server_can_do() -> None:
    """A server that never waits below capacity holds any rate up to it, and none above, however short the probes."""
    found = found_on(Queue(0.01), Slo(ttft_p99_ms=1000)).max_rate

    assert found.rate_per_s is not None
    assert 96 <= found.rate_per_s <= 100
    assert found.saturation_per_s == pytest.approx(100, rel=0.01)
    assert {None, "steady"} == {probe.state for probe in found.probes}


def test_poisson_arrivals_wait() -> None:
    """One server with fixed service holds a p99 wait of four services at 56% of its capacity under Poisson arrivals."""
    found = found_on(Queue(0.01), Slo(ttft_p99_ms=50), arrivals="poisson").max_rate

    assert found.rate_per_s == pytest.approx(56.2, rel=0.05)
    assert found.low_per_s is not None
    assert found.high_per_s is not None
    assert found.low_per_s <= found.rate_per_s <= found.high_per_s


def test_failed_request_is_one_that_took_for_ever() -> None:
    """With one failure in ten no rate holds a p95, however fast the others were; a p50 is not moved."""
    strict, lenient = (
        found_on(Queue(0.01, failing=10), Slo(**{limit: 1000})).max_rate
        for limit in ("latency_p95_ms", "latency_p50_ms")
    )

    assert ("unreachable", None) == (strict.ended, strict.rate_per_s)
    assert lenient.rate_per_s is not None


def test_a_server_that_answers_nothing_is_an_error() -> None:
    """The first probe says what came instead."""
    with pytest.raises(LoadError, match=r"None of the first \d+ requests ended well \(reset\)"):
        found_on(Queue(0.02, failing=1), Slo(ttft_p50_ms=100))
