"""What the engine's own counters say of a run."""

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from loadgen.broken_server import serving
from tokenpeak.loadgen.http.metrics_page import Sample, Scraper, counters, parse, restarted

V1 = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 20.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 6.0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
"""
V0 = """\
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:num_requests_swapped{model_name="m"} 3.0
vllm:cpu_cache_usage_perc{model_name="m"} 0.25
"""


def sample(at_s: float, **values: float) -> Sample:
    return Sample(at_s=at_s, values=values)


def test_engines_of_one_server_are_one() -> None:
    """Counts are summed over engines and reasons, shares are averaged; when a counter was created is no count."""
    expected = {
        "requests_running": 7.0,
        "requests_waiting": 2.0,
        "kv_cache_usage": 0.5,
        "prompt_tokens": 120.0,
        "prefix_cache_queries": 100.0,
        "requests_finished": 11.0,
        "process_start_time_s": 1.7e9,
    }

    assert expected == parse(V1)
    assert {"kv_cache_usage": 0.5, "requests_swapped": 3.0, "cpu_cache_usage": 0.25} == parse(V0)


def test_counters_are_of_the_span_and_gauges_of_what_lies_inside() -> None:
    """Rates are what the counters grew by; how the engine stood before the run is not how it stood in it."""
    found = counters(
        [
            sample(
                10.0,
                prompt_tokens=100,
                prefix_cache_queries=50,
                prefix_cache_hits=50,
                preemptions=2,
                requests_running=90,
            ),
            sample(11.0, requests_running=1, kv_cache_usage=0.2, requests_swapped=4, cpu_cache_usage=0.1),
            sample(
                14.0,
                prompt_tokens=500,
                prefix_cache_queries=150,
                prefix_cache_hits=75,
                preemptions=5,
                requests_running=3,
            ),
        ]
    )

    assert found is not None
    assert 100.0 == found.prompt_tok_per_s
    assert 0.25 == found.prefix_cache_hit_rate
    assert 3 == found.preemptions
    assert 2.0 == found.running_mean
    assert 3.0 == found.running_max
    assert 0.2 == found.kv_cache_usage_max
    assert (4.0, 0.1) == (found.swapped_max, found.cpu_cache_usage_mean)
    assert (None, None) == (found.generation_tok_per_s, found.waiting_mean)


def test_drafting_is_counted_within_the_run() -> None:
    """Of 40 tokens in 10 drafts 30 were accepted: three quarters, and four tokens a step with the model's own."""
    page = """# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total {0}
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total {1}
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total {2}
"""
    before, after = (parse(page.format(*numbers)) for numbers in ((5, 20, 20), (15, 60, 50)))
    found = counters([sample(0.0, **before), sample(9.0, **after)])
    idle = counters([sample(0.0, **before), sample(9.0, **before)])

    assert found is not None
    assert idle is not None
    assert (0.75, 4.0) == (found.draft_acceptance_rate, found.draft_accepted_length)
    assert (None, None) == (idle.draft_acceptance_rate, idle.draft_accepted_length)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"generation_tokens": 5}, {"generation_tokens": 9}, False),
        ({"process_start_time_s": 1.0}, {"process_start_time_s": 2.0}, True),
        ({"generation_tokens": 9}, {"generation_tokens": 5}, True),
        ({"requests_running": 9}, {"requests_running": 0}, False),
    ],
)
def test_engine_that_was_started_again_is_noticed(
    before: dict[str, float], after: dict[str, float], expected: bool
) -> None:
    """By its start time where it exports it, else by a count that fell; gauges may fall."""
    assert expected == restarted([sample(0.0, **before), sample(1.0, **after)])


@contextmanager
def scraping(pages: Sequence[str]) -> Iterator[Scraper]:
    """A scraper of a real server that shows each page once, and the last one from then on."""
    left = list(pages)

    def page(connection: socket.socket, _: bytes) -> None:
        body = (left.pop(0) if len(left) > 1 else left[0]).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    with serving(page, other=page) as url:
        scraper = Scraper(f"{url}/metrics", {}, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        try:
            yield scraper
        finally:
            scraper.stop()


def gauges(running: int, waiting: int) -> str:
    """A page of an engine with so many requests."""
    return f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"


@pytest.mark.parametrize(
    ("pages", "expected", "looks"),
    [
        ([gauges(1, 0), gauges(0, 1), gauges(0, 0)], True, 3),
        ([gauges(0, 1)], False, None),
        (["up 1\n"], None, 0),
    ],
    ids=["drains", "never", "shows nothing"],
)
def test_waits_until_nothing_runs_or_waits(pages: list[str], expected: bool | None, looks: int | None) -> None:
    """An engine is drained when it neither runs nor queues anything; one that does not export it is not waited for."""
    with scraping(pages) as scraper:
        assert expected is scraper.drained(0.3)
        assert looks is None or looks == len(scraper.series(0.0).t_s)
