"""Traces of each format at 200 requests/s: when they arrive at a server that shares no code with us."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
RATE_PER_S, SECONDS = 200, 8
LATE_P99_S = 0.002
pytestmark = [pytest.mark.e2e]


@contextmanager
def clock_server() -> Iterator[tuple[str, list[float]]]:
    """Its address, and when requests arrived, once it has ended."""
    arrived: list[float] = []
    words = [sys.executable, str(Path(__file__).with_name("arrival_clock.py"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}", arrived
        out, _ = server.communicate("")
        arrived += json.loads(out)


def span(at: float) -> str:
    attributes = [
        {"key": f"gen_ai.usage.{kind}_tokens", "value": {"intValue": str(tokens)}}
        for kind, tokens in (("input", 8), ("output", 2))
    ]
    each = {"startTimeUnixNano": str(1_700_000_000 * 10**9 + round(at * 1e9)), "attributes": attributes}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [each]}]}]})


def aiperf(at: float) -> str:
    lengths = {f"{kind}_sequence_length": {"value": size} for kind, size in (("input", 8), ("output", 2))}
    return json.dumps({"metadata": {"request_start_ns": round(at * 1e9)}, "metrics": lengths})


def guidellm(times: NDArray[np.float64]) -> str:
    rows = [{"request_id": "x", "request_start_time": at, "prompt_tokens": 8, "output_tokens": 2} for at in times]
    return json.dumps({"benchmarks": [{"requests": {"successful": rows}}]}, indent=1)


def log(times: NDArray[np.float64]) -> str:
    """The log of vLLM, which has whole seconds: it says no more of a request's time."""
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    return "\n".join(
        f"INFO {begin + timedelta(seconds=int(at)):%m-%d %H:%M:%S} [logger.py:39] Received request cmpl-{number}-0: "
        "prompt: 'x', params: SamplingParams(n=1, max_tokens=2), prompt_token_ids: [1, 2, 3, 4, 5, 6, 7, 8], "
        "lora_request: None."
        for number, at in enumerate(times)
    )


def lines(row: Callable[[float], str], head: str = "") -> Callable[[NDArray[np.float64]], str]:
    """A writer of a line for each request."""
    return lambda times: head + "\n".join(row(float(at)) for at in times)


FORMATS: dict[str, Callable[[NDArray[np.float64]], str]] = {
    "own.jsonl": lines(lambda at: json.dumps({"timestamp_s": at, "input_tokens": 8, "output_tokens": 2})),
    "mooncake.jsonl": lines(
        lambda at: json.dumps({"timestamp": at * 1000, "input_length": 8, "output_length": 2, "hash_ids": [1]})
    ),
    "azure.csv": lines(
        lambda at: f"{datetime(2023, 11, 16, tzinfo=UTC) + timedelta(seconds=at):%Y-%m-%d %H:%M:%S.%f}0,8,2",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
    ),
    "burst.csv": lines(
        lambda at: f"{at},GPT-4,8,2,10,API log",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
    ),
    "profile_export.jsonl": lines(aiperf),
    "benchmarks.json": guidellm,
    "spans.jsonl": lines(span),
    "completions.jsonl": lines(
        lambda at: json.dumps({"created": at, "usage": {"prompt_tokens": 8, "completion_tokens": 2}})
    ),
    "vllm.log": log,
}


@pytest.mark.parametrize("name", FORMATS)
def test_requests_arrive_when_they_are_due(name: str, tmp_path: Path) -> None:
    """The gaps of the recording, to within 2 ms for 99 of 100 requests, by the server's own clock."""
    random = np.random.default_rng(0)
    times = np.round(np.sort(random.uniform(0, SECONDS, RATE_PER_S * SECONDS)), 6)
    due = times - times[0]
    if name == "vllm.log":
        # Those of a second follow each other evenly within it.
        whole = times.astype(int)
        number = np.bincount(whole)
        place = np.arange(len(times)) - np.searchsorted(whole, whole)
        due = whole + place / number[whole]
    trace = tmp_path / name
    trace.write_text(FORMATS[name](times))

    with clock_server() as (url, arrived):
        words = [TOKENPEAK, "load", url, "--trace", str(trace), "--model", "m", "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr
    record = json.loads(done.stdout)
    assert record["summary"]["requests_ok"] == len(times), record["summary"]["failures"]

    measured = np.sort(np.array(arrived[-len(times) :]))
    late = measured - measured[0] - due
    late -= np.median(late)
    print(f"{name}: p99 {np.quantile(np.abs(late), 0.99) * 1e3:.2f} ms, most {np.abs(late).max() * 1e3:.1f} ms")
    assert np.quantile(np.abs(late), 0.99) <= LATE_P99_S
