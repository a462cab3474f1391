"""Workloads of pooling models: what is sent, what counts as an answer, and what follows from it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import polars as pl
import pytest

from tokenpeak.errors import SpecError
from tokenpeak.loadgen.assignment import LoadAssignment, Target, payload
from tokenpeak.loadgen.http.connection import Exchange
from tokenpeak.loadgen.http.pooled_answer import read_pooled
from tokenpeak.loadgen.prompts import Prompts, make
from tokenpeak.loadgen.run import REQUEST_SCHEMA
from tokenpeak.loadgen.vocabulary import WORDS, Vocabulary
from tokenpeak.node.engine import serving
from tokenpeak.ranking.objective import metric_value
from tokenpeak.records import RunRecord
from tokenpeak.results.run_summary import summarize
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.spec.workload import PoolingWorkload

VOCABULARY = Vocabulary(ids=tuple(range(1000, 9000)), words=WORDS)


def workload(**fields: object) -> PoolingWorkload:
    return PoolingWorkload.model_validate({"name": "texts", "endpoint": "embeddings", "input_tokens": 40, **fields})


def prompts(asked: PoolingWorkload, *, salt: str = "one", number: int = 6) -> Prompts:
    return make(asked, "m", VOCABULARY, number=number, seed=0, salt=salt)


def bodies(made: Prompts, count: int) -> list[Any]:
    """The first bodies of a run, as a server reads them."""
    target = Target(host="h", port=1, head=b"POST / HTTP/1.1\r\n")
    assignment = LoadAssignment(
        target=target, templates=made.templates, resalt=made.resalt, salt_ids=made.salt_ids, results=made.results
    )
    return [json.loads(payload(assignment, Exchange(index, 0.0)).partition(b"\r\n\r\n")[2]) for index in range(count)]


@pytest.mark.parametrize("endpoint", ["embeddings", "classify"])
def test_texts_of_token_ids_have_their_lengths(endpoint: str) -> None:
    """Each request has so many texts, each of so many ids; nothing of a stream or of generation is asked."""
    for body in bodies(prompts(workload(endpoint=endpoint, inputs=3)), 6):
        assert [40, 40, 40] == [len(ids) for ids in body["input"]]
        assert not {"stream", "max_tokens", "temperature", "ignore_eos"} & body.keys()


def test_repeated_request_has_ids_of_its_own() -> None:
    """A repeat begins otherwise, at the same length; two runs share nothing."""
    first = bodies(prompts(workload()), 12)
    other = bodies(prompts(workload(), salt="two"), 6)

    assert 12 == len({tuple(body["input"][0][:6]) for body in first})
    assert {40} == {len(body["input"][0]) for body in first}
    assert first[0]["input"][0] != other[0]["input"][0]


@pytest.mark.parametrize(
    ("endpoint", "query", "texts"), [("rerank", "query", "documents"), ("score", "text_1", "text_2")]
)
def test_documents_are_words_beside_a_query(endpoint: str, query: str, texts: str) -> None:
    """As many words as tokens were asked for, in each document and in the query."""
    for body in bodies(prompts(workload(endpoint=endpoint, inputs=5, query_tokens=7)), 6):
        assert 7 == len(body[query].split())
        assert [40] * 5 == [len(text.split()) for text in body[texts]]


def test_long_texts_do_not_fill_the_memory() -> None:
    """A run by time of large requests has fewer that differ: about four million tokens of them."""
    made = make(workload(input_tokens=8000, inputs=5), "m", VOCABULARY, number=None, seed=0, salt="one")

    assert 100 == len(made.templates)


def answered(content: object, *, status: int = 200, results: int = 2) -> Any:
    """What is read of an answer that came in two packets, a second apart."""
    body = json.dumps(content).encode()
    exchange = Exchange(0, 10.0)
    exchange.sent, exchange.status = 10.1, status
    exchange.packets = [b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\n\r\n" % (status, len(body)), body]
    exchange.times = [11.0, 12.0]
    return read_pooled(exchange, 10.0, results=results)


USAGE = {"prompt_tokens": 80, "total_tokens": 80}


def test_answer_ends_with_its_last_byte_and_has_no_tokens() -> None:
    """Latency is known; what only generation has is absent, not zero."""
    found = answered({"data": [{}, {}], "usage": USAGE})

    assert found.error is None
    assert 2.0 == pytest.approx(found.last_token_s)
    assert (80, None, None, 0) == (found.input_tokens, found.output_tokens, found.first_token_s, found.events)


@pytest.mark.parametrize(
    ("content", "status", "error"),
    [
        ({"results": [{}, {}], "usage": USAGE}, 200, None),
        ({"data": [{}], "usage": USAGE}, 200, "wrong_results"),
        ({"data": [{}, {}, {}], "usage": USAGE}, 200, "wrong_results"),
        ({"data": [{}, {}]}, 200, "no_usage"),
        ({"data": [{}, {}], "usage": {"prompt_tokens": -1}}, 200, "bad_usage"),
        ({"data": [{}, {}], "usage": {"prompt_tokens": 3, "prompt_tokens_details": 7}}, 200, "bad_usage"),
        ({"choices": []}, 200, "malformed_answer"),
        ([], 200, "malformed_answer"),
        ({"data": [{}, {}], "usage": USAGE}, 500, "http_500"),
    ],
)
def test_answer_counts_only_with_all_results_and_usage(content: object, status: int, error: str | None) -> None:
    """Anything else is a failed request with its kind."""
    found = answered(content, status=status)

    assert error == found.error
    assert (found.last_token_s is None) == (error is not None)


def closed_loop(streams: int, requests: int, latency_s: float) -> pl.DataFrame:
    """Requests of a loop whose slots began a little apart and then never wait, of 80 input tokens each."""
    rows = []
    for index in range(requests):
        slot, turn = index % streams, index // streams
        sent = slot * latency_s / streams + turn * latency_s
        rows.append(
            dict.fromkeys(REQUEST_SCHEMA)
            | {"run_index": 0, "request_index": index, "phase": "measured", "due_s": sent, "sent_s": sent}
            | {"first_byte_s": sent + latency_s, "last_token_s": sent + latency_s, "input_tokens": 80, "events": 0}
            | {"event_times_us": [], "status": 200}
        )
    return pl.DataFrame(rows, schema=REQUEST_SCHEMA)


def test_throughput_of_a_closed_loop_is_that_of_its_slots() -> None:
    """Four slots of 80 tokens each half a second: 640 tokens and 8 requests a second, ramp and drain left out."""
    summary = summarize(closed_loop(4, 80, 0.5), Slo(), from_due=False, concurrency=4, generates=False)

    assert summary.steady_waves
    assert 640 == pytest.approx(summary.input_tok_per_s)
    assert 8 == pytest.approx(summary.request_per_s)
    assert 0.5 == pytest.approx(summary.latency_s.p95)
    absent = (summary.output_tokens, summary.output_tok_per_s, summary.total_tok_per_s, summary.peak_output_tok_per_s)
    assert (None,) * 4 == absent
    assert [0, 0, 0] == [each.n for each in (summary.ttft_s, summary.tpot_s, summary.itl_s)]


def test_texts_per_second_are_those_of_the_requests() -> None:
    """Requests per second × texts of each."""
    summary = summarize(closed_loop(4, 80, 0.5), Slo(), from_due=False, concurrency=4, generates=False)
    run = RunRecord.model_construct(summary=summary, workload=workload(inputs=3), energy=None, max_rate=None)

    assert 24 == pytest.approx(metric_value(run, "inputs_per_s", spec().energy) or 0)


PLAN = {"workload": {"kind": "pooling", "name": "texts", "endpoint": "embeddings", "input_tokens": 40}}
OTHER = {"workload": {"kind": "synthetic", "name": "chat", "input_tokens": 4, "output_tokens": 4}}
LEVELS = {"levels": [{"concurrency": 4, "requests": 40}]}


def spec(*plans: dict[str, Any], **fields: object) -> SweepSpec:
    written = {"model": {"name": "m"}, "workloads": [plan | LEVELS for plan in plans or (PLAN,)], **fields}
    return parse_spec(written, Path("sweep.yml"))


def test_pooling_sweep_looks_for_input_tokens_and_compares_no_answers() -> None:
    """Where it says nothing else; as it was recorded it is read again as it was."""
    read = spec()

    assert ("input_tok_per_s", False) == (read.objective.metric, read.quality)
    assert read == parse_spec(read.model_dump(mode="json"), Path("sweep.yml"))
    assert "inputs_per_s" == spec(objective={"metric": "inputs_per_s"}).objective.metric
    assert "output_tok_per_s" == spec(OTHER).objective.metric


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"slo": {"ttft_p95_ms": 500}}, "Write latency_p95_ms"),
        ({"slo": {"itl_p99_ms": 500}}, "Write latency_p99_ms"),
        ({"objective": {"metric": "output_tok_per_s"}}, "Write input_tok_per_s, inputs_per_s or latency_s_p95"),
        ({"objective": {"metric": "ttft_s_p95"}}, "Write input_tok_per_s, inputs_per_s or latency_s_p95"),
        ({"objective": {"also": ["tpot_s_p95"]}}, "Write input_tok_per_s, inputs_per_s or latency_s_p95"),
        ({"quality": {"margin": 0.1}}, "Remove quality"),
    ],
)
def test_limits_and_objectives_of_generated_tokens_are_refused(fields: dict[str, Any], sentence: str) -> None:
    """With what to write instead."""
    with pytest.raises(SpecError, match=sentence):
        spec(**fields)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"output_tokens": 5}, "output_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"temperature": 0.5}, "temperature"),
        ({"endpoint": "rerank"}, "endpoint: rerank needs query_tokens"),
        ({"query_tokens": 5}, "remove query_tokens"),
    ],
)
def test_fields_of_generation_are_refused(change: dict[str, Any], sentence: str) -> None:
    """A pooling workload has none of them, and a query just where documents are compared with one."""
    with pytest.raises(SpecError, match=sentence):
        spec({"workload": PLAN["workload"] | change})


def test_one_sweep_is_of_one_kind_of_model() -> None:
    """A server either generates or pools; texts a second are of pooling alone."""
    with pytest.raises(SpecError, match="Write a sweep for each"):
        spec(PLAN, OTHER)
    with pytest.raises(SpecError, match="Write request_per_s"):
        spec(OTHER, objective={"metric": "inputs_per_s"})


@contextmanager
def server(endpoint: str) -> Iterator[str]:
    """A server that names its model and answers one endpoint, as vLLM does for a pooling model."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, {"data": [{"id": "m"}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path == endpoint
            self._answer(200 if known else 404, {"data": [{"index": 0}], "model": "m"} if known else {"detail": "none"})

        def _answer(self, status: int, content: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.mark.parametrize(
    ("endpoint", "serves"),
    [("/v1/embeddings", True), ("/classify", True), ("/score", True), ("/pooling", True), ("/elsewhere", False)],
)
def test_server_without_completions_serves_where_it_pools(endpoint: str, serves: bool) -> None:
    """A launched engine and production are asked the same question."""
    with server(endpoint) as url:
        assert serves == (serving.complete(url, "m", timeout_s=5) is None)


def test_lengths_of_a_distribution_are_drawn_for_each_text() -> None:
    """Texts of one request differ, and a run's mean is that of the distribution."""
    drawn = {"distribution": "uniform", "low": 10, "high": 30}
    sizes = [
        [len(ids) for ids in body["input"]]
        for body in bodies(prompts(workload(input_tokens=drawn, inputs=8), number=80), 80)
    ]

    assert any(len(set(each)) > 1 for each in sizes)
    assert 20 == pytest.approx(float(np.mean(sizes)), abs=1.5)
