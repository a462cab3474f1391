from typing import Any

import pytest

from loadgen.replies import reply, steady
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.run import request_table
from tokenpeak.records import ClientHealth, EngineCounters, LoadHostHealth, Reason, Verdict
from tokenpeak.results.run_summary import distribution, summarize
from tokenpeak.results.verdict import RunEvidence, judge
from tokenpeak.spec.load import ClosedLoad, LoadLevel, OpenLoad
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import ConversationWorkload, FixedWorkload, SyntheticWorkload, Workload

SYNTHETIC = SyntheticWorkload(name="x", input_tokens=10, output_tokens=5)
CHATS = ConversationWorkload(name="c", starters=1, starter_tokens=5, turns=5, turn_text="And then?", output_tokens=5)


def codes(
    replies: list[Reply] | None = None,
    *,
    level: LoadLevel | None = None,
    slo: Slo | None = None,
    workload: Workload = SYNTHETIC,
    lag_s: float = 0.001,
    hosts: tuple[LoadHostHealth, ...] = (),
    warmup_requests: int = 0,
    **keys: Any,
) -> list[str]:
    replies = steady() if replies is None else replies
    level = level or ClosedLoad(concurrency=2, requests=len(replies))
    slo = slo or Slo()
    requests = request_table(replies, 0, warmup_requests)
    delays = [(found.sent_s or 0) - found.due_s for found in replies if found.sent_s is not None]
    evidence = RunEvidence(
        workload=workload,
        level=level,
        slo=slo,
        requests=requests,
        summary=summarize(requests, slo, from_due=isinstance(level, OpenLoad)),
        **{
            "busiest_share": 0.1,
            "client": ClientHealth(
                dispatch_delay_s=distribution(delays), loop_lag_s=distribution([lag_s] * 100), hosts=hosts
            ),
            **keys,
        },
    )
    return [reason.code for reason in judge(evidence).reasons]


def test_good_run_is_valid() -> None:
    """A run without a fault has no reason against it."""
    assert [] == codes(engine=EngineCounters(prefix_cache_hit_rate=0.01, preemptions=0), drained=True)


@pytest.mark.parametrize(
    ("reason", "keys"),
    [
        ("loop_lag", {"lag_s": 0.05}),
        ("client_cpu", {"busiest_share": 0.97}),
        ("concurrency_not_reached", {"level": ClosedLoad(concurrency=4, requests=200)}),
        ("prefix_cache", {"engine": EngineCounters(prefix_cache_hit_rate=0.5)}),
        ("preemptions", {"engine": EngineCounters(preemptions=3)}),
        ("engine_restarted", {"engine_restarted": True}),
        ("not_drained", {"drained": False}),
        ("stopped", {"stopped": "the run's deadline passed"}),
        ("too_few_requests", {"slo": Slo(ttft_p99_ms=1000), "replies": steady(60)}),
        ("late_dispatch", {"replies": [reply(i, 0.25 * i, due_s=0.25 * i - 0.05) for i in range(200)]}),
        ("token_counts", {"replies": steady(events=9)}),
        ("no_requests", {"replies": steady(5, error="http_500")}),
    ],
)
def test_reason(reason: str, keys: dict[str, Any]) -> None:
    """Each fault is a reason of its own."""
    assert reason in codes(**keys)


@pytest.mark.parametrize(
    ("sent", "more", "is_less"),
    [
        (60, {}, False),
        (58, {}, False),
        (15, {}, True),
        (15, {"stopped": "the run's deadline passed"}, False),
        (15, {"due": None}, False),
        (54, {}, True),
        (54, {"workload": CHATS}, False),
        (15, {"workload": CHATS}, True),
        (30, {"workload": CHATS, "error": "http_500"}, False),
    ],
    ids=["all", "nearly", "a quarter", "stopped", "by time", "fewer", "chats cut", "chats lost", "chats failed"],
)
def test_a_smaller_load_than_was_asked_for(sent: int, more: dict[str, Any], is_less: bool) -> None:
    """Far fewer requests than were due, with nothing that explains it: the run shows another load."""
    shown = dict(more)
    replies = steady(sent, **({"error": shown.pop("error")} if "error" in shown else {}))
    keys: dict[str, Any] = {"level": OpenLoad(rate_per_s=4, requests=60), "due": 60, **shown}

    assert is_less == ("too_few_sent" in codes(replies, **keys))


@pytest.mark.parametrize(("preemptions", "reasons"), [(2, []), (4, ["preemptions"])])
def test_preemption_is_judged_by_what_it_computed_again(preemptions: int, reasons: list[str]) -> None:
    """Of 200 requests two cost at most 1% of the tokens again, whatever their lengths; four cost more than 1%."""
    assert reasons == codes(engine=EngineCounters(preemptions=preemptions))


def test_growing_latency_at_a_rate_is_overload() -> None:
    """Latency that grows through an open-loop run means that the engine did not keep up, a word for which there is."""
    growing = [reply(index, 0.25 * index, last_token_s=0.25 * index + 0.5 + index / 50) for index in range(200)]
    reason = Reason(code="overloaded", text="The queue grew.")

    assert ["overloaded"] == codes(growing, level=OpenLoad(rate_per_s=4, requests=200))
    assert ["not_steady"] == codes(growing), "a closed loop asks no more than is served"
    assert "overloaded" == Verdict(status="invalid", reasons=(reason,)).word


def test_falling_latency_is_not_steady() -> None:
    """Latency that falls through a run is an engine that still warmed up: not overload, and not steady."""
    falling = [reply(index, 0.25 * index, last_token_s=0.25 * index + 4.5 - index / 50) for index in range(200)]

    assert ["not_steady"] == codes(falling, level=OpenLoad(rate_per_s=4, requests=200))


def test_cache_hits_that_the_workload_means() -> None:
    """A fixed prompt shares its cache by design, and a stated hit rate is held to both ways."""
    engine = EngineCounters(prefix_cache_hit_rate=0.9)
    fixed = FixedWorkload(name="f", prompt="Hi", output_tokens=5)

    assert [] == codes(workload=fixed, engine=engine)
    assert ["prefix_cache"] == codes(
        workload=fixed.model_copy(update={"expected_prefix_hit_rate": 0.99}), engine=engine
    )


@pytest.mark.parametrize(
    ("late_s", "error_s", "found"), [(0.01, 0.001, []), (0.6, 0.001, ["not_together"]), (0.01, 0.6, ["not_together"])]
)
def test_host_that_began_late(late_s: float, error_s: float, found: list[str]) -> None:
    """A host that began late, or whose clock is not known well enough, falsifies the throughput."""
    host = LoadHostHealth(
        load_host="b", requests=100, processes=1, cpu_s=1.0, began_late_s=late_s, clock_error_s=error_s
    )

    assert found == codes(hosts=(host,))
