"""Time to the first token of an answer, of a server that thinks aloud at known moments and shares no code with ours."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from loadgen.broken_server import serving
from loadgen.test_generator import measure, requests
from tokenpeak.loadgen.progress import summary_text
from tokenpeak.spec.slo import Slo

CHAT = {"kind": "fixed", "name": "x", "prompt": "Why?", "output_tokens": 8, "endpoint": "chat"}
ONE = {"concurrency": 1, "requests": 3}
LATE_S = 0.3
"""The server sends nothing early; a busy machine lets it, or the client, come so late."""
Event = tuple[float, dict[str, Any]]


class Thinker:
    """Sends each delta at its moment after the request, as chunks of an event stream, and a usage at the end."""

    def __init__(self, *events: Event) -> None:
        self.events = events

    def __call__(self, connection: socket.socket, request: bytes) -> None:
        began = time.perf_counter()
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        send(connection, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for at_s, delta in self.events:
            time.sleep(max(0.0, began + at_s - time.perf_counter()))
            send(connection, {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        send(connection, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 4, "completion_tokens": len(self.events)}
        send(connection, {"choices": [], "usage": usage})
        connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def send(connection: socket.socket, event: dict[str, Any]) -> None:
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))


def thoughts(key: str, number: int) -> list[Event]:
    """So many thoughts, every 10 ms from 50 ms on."""
    return [(0.05 + 0.01 * index, {key: f"hm {index} "}) for index in range(number)]


def answer(at_s: float, number: int) -> list[Event]:
    return [(at_s + 0.01 * index, {"content": f"so {index} "}) for index in range(number)]


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("number", [1, 20], ids=["one thought", "thoughts beyond what is learned"])
def test_the_answer_begins_after_the_thoughts(key: str, number: int, tmp_path: Path) -> None:
    """TTFT is the first thought's, TTFAT the answer's first token's; every token is counted and timed."""
    with serving(Thinker(*thoughts(key, number), *answer(0.4, 12))) as url:
        record = measure(url, tmp_path, ONE, CHAT, slo={"ttfat_p50_ms": 390})
    rows = requests(tmp_path)

    assert [number + 12] * 3 == rows["events"].to_list()
    assert 0.05 <= (record.summary.ttft_s.p50 or 0) < 0.05 + LATE_S
    assert 0.4 <= (record.summary.ttfat_s.p50 or 0) < 0.4 + LATE_S
    assert (rows["first_answer_s"] - rows["sent_s"]).median() == pytest.approx(record.summary.ttfat_s.p50)
    assert (False, {"ttfat_s_p50": 0}) == (record.slo_met, record.summary.within_limits)
    assert "First answer token" in summary_text(record)


def test_a_tool_call_is_an_answer(tmp_path: Path) -> None:
    """A call of a tool after thoughts, and a blank text among them, which is none."""
    calls = [{"index": 0, "function": {"name": "f", "arguments": ""}}]
    events = [*thoughts("reasoning", 2), (0.1, {"content": ""}), (0.2, {"tool_calls": calls})]
    with serving(Thinker(*events)) as url:
        record = measure(url, tmp_path, ONE, CHAT)

    assert 0.2 <= (record.summary.ttfat_s.p50 or 0) < 0.2 + LATE_S


def test_without_thoughts_it_is_the_first_token(tmp_path: Path) -> None:
    """It is not recorded then, unless a limit asks for it; the limit holds as one of TTFT would."""
    with serving(Thinker(*answer(0.05, 4))) as url:
        plain = measure(url, tmp_path, ONE, CHAT)
        limited = measure(url, tmp_path, ONE, CHAT, slo={"ttfat_p50_ms": 1000})

    assert (None, True) == (plain.summary.ttfat_s.n, limited.slo_met)
    assert limited.summary.ttft_s == limited.summary.ttfat_s
    assert "First answer token" not in summary_text(plain)


def test_thoughts_without_an_answer_hold_no_limit(tmp_path: Path) -> None:
    """A request whose tokens ended before its answer began did not hold the limit, however soon it ended."""
    with serving(Thinker(*thoughts("reasoning", 4))) as url:
        record = measure(url, tmp_path, ONE, CHAT, slo={"ttfat_p50_ms": 10_000})

    assert [None] * 3 == requests(tmp_path)["first_answer_s"].to_list()
    assert (3, False, 0) == (record.summary.requests_ok, record.slo_met, record.summary.goodput_request_per_s)


def test_limits_are_of_milliseconds() -> None:
    """Its limits are read as those of TTFT, and a second taken for a millisecond is refused."""
    assert [("ttfat_s", "p99", 2.0)] == Slo(ttfat_p99_ms=2000).limits()
    with pytest.raises(ValueError, match=r"ttfat_p99_ms is 0\.5 ms, which no server holds"):
        Slo(ttfat_p99_ms=0.5)
