"""What packets say, whatever server sent them and however they were cut."""

import json
from array import array
from collections.abc import Sequence

import pytest

from loadgen.broken_server import DONE, END, HEAD, USAGE, chunk, event, stream
from tokenpeak.loadgen.http.connection import Exchange
from tokenpeak.loadgen.http.stream import Reply, read


def exchange_of(*packets: bytes, times: Sequence[float] | None = None) -> Exchange:
    """A request due at 10 s, sent at 10.1 s, whose packets came a tenth of a second apart from 11 s on."""
    exchange = Exchange(0, 10.0)
    exchange.sent, exchange.status = 10.1, 200
    exchange.packets = list(packets)
    exchange.times = list(times or [11 + 0.1 * number for number in range(len(packets))])
    return exchange


def chat(finish: str | None = None, **delta: object) -> bytes:
    """A chat event."""
    return b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()


def replied(*events: bytes) -> Reply:
    """What is read of a stream of these events, each a packet of its own."""
    return read(exchange_of(HEAD, *map(chunk, [*events, USAGE, DONE]), END), 10.0)


def test_times_are_on_the_runs_clock() -> None:
    """Due, sent, first byte and tokens count from the run's start; gaps are whole microseconds, rounded."""
    packets = [HEAD, chunk(event()), chunk(event()), chunk(event(finish="length") + USAGE + DONE) + END]
    found = read(exchange_of(*packets, times=[11.0, 11.2, 11.2500017, 11.3]), 9.5)

    assert 0.5 == pytest.approx(found.due_s)
    assert 0.6 == pytest.approx(found.sent_s)
    assert 1.5 == pytest.approx(found.first_byte_s)
    assert 1.7 == pytest.approx(found.first_token_s)
    assert 1.8 == pytest.approx(found.last_token_s)
    assert [50_002, 49_998] == list(array("i", found.event_times_us))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_token_arrives_with_its_last_byte(size: int) -> None:
    """However a response is cut, an event's time is that of the packet with which it became whole."""
    whole = stream(9)
    packets = [whole[start : start + size] for start in range(0, len(whole), size)]
    found = read(exchange_of(*packets, times=[10 + number / 8 for number in range(len(packets))]), 10.0)
    ends = [at for at in range(len(whole)) if whole[:at].endswith(b"}\n\n") and b"choices" in whole[:at]]

    first, last = ((end - 1) // size / 8 for end in (ends[0], ends[8]))
    assert 9 == found.events
    assert found.error is None
    assert first == found.first_token_s
    assert last == found.last_token_s


@pytest.mark.parametrize(
    ("events", "tokens"),
    [
        ([chat(role="assistant", content=""), chat(content="a"), chat(content="b"), chat("stop")], 2),
        ([chat(role="assistant", content="a"), chat("stop", content="b")], 2),
        ([chat(role="assistant"), chat(content=""), chat(content="a"), chat("length")], 2),
        ([chat(reasoning_content="hm"), chat(reasoning="so"), chat(content="a"), chat("stop")], 3),
        ([chat(tool_calls=[{"index": 0}]), chat("tool_calls")], 1),
        ([event(""), event("a"), event("", finish="length")], 3),
    ],
    ids=["chat", "role with text", "text held back", "reasoning", "tool call", "completion"],
)
def test_which_events_carry_tokens(events: list[bytes], tokens: int) -> None:
    """What opens a message or only ends it is no token; thoughts, calls and text that is held back are."""
    assert (tokens, None) == (replied(*events).events, replied(*events).error)


def test_texts_of_every_kind_are_tokens() -> None:
    """Quotes, escapes and braces in a text, and another shape in between, hide no event and make none."""
    texts = ["a", "b", r"\"", r"\n", r"\\", r"\\\",\"x", "é", r"}\n", "c", "c"]
    between = b'data: {"choices":[{"text":"d","index":0}],"extra":1}\n\n'
    found = replied(*map(event, texts), between, *map(event, texts), event(finish="length"))

    assert (2 * len(texts) + 2, None) == (found.events, found.error)


def test_usage_shows_what_the_cache_served() -> None:
    """Cached tokens are known where the server says so, and are not where it does not."""
    details = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 6}}
    usage = b"data: %b\n\n" % json.dumps({"choices": [], "usage": details}).encode()
    found = read(exchange_of(HEAD + chunk(event(finish="stop") + usage + DONE) + END), 10.0)

    assert 9 == found.input_tokens
    assert 1 == found.output_tokens
    assert 6 == found.cached_tokens
    assert replied(event(finish="stop")).cached_tokens is None


@pytest.mark.parametrize(
    "tail", [DONE, DONE.strip(), DONE.replace(b"\n", b"\r\n"), b""], ids=["whole", "bare", "crlf", "finish reason"]
)
def test_a_stream_ends_when_the_server_says_so(tail: bytes) -> None:
    """`[DONE]` is one, with or without what follows an event; a finish reason is another."""
    finish = None if tail else "length"
    body = event() + event(finish=finish) + USAGE
    found = read(
        exchange_of(HEAD + chunk((body.replace(b"\n", b"\r\n") if b"\r" in tail else body) + tail) + END), 10.0
    )

    assert (2, None) == (found.events, found.error)


def test_what_came_before_a_fault_is_kept() -> None:
    """An exchange that failed on the way keeps its own error, and the tokens that it brought."""
    exchange = exchange_of(HEAD, chunk(event()), chunk(event()))
    exchange.error, exchange.detail = "reset", "the peer went"
    found = read(exchange, 10.0)

    assert "reset" == found.error
    assert "the peer went" == found.detail
    assert 2 == found.events
    assert found.output_tokens is None


def test_stream_without_usage() -> None:
    """Where a server is known to send a token an event, events with text stand for usage; usage goes before them."""
    last = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\n'
    packets = [HEAD, *map(chunk, [event(), event(), event(), last, DONE]), END]
    counted = read(exchange_of(*packets), 10.0, events_for_usage=True)
    chats = [chat(role="assistant"), chat(content="a"), chat(content="b"), chat(finish="length"), DONE]
    talked = read(exchange_of(HEAD, *map(chunk, chats), END), 10.0, events_for_usage=True)

    assert "no_usage" == read(exchange_of(*packets), 10.0).error
    assert (None, 3, None) == (counted.error, counted.output_tokens, counted.input_tokens)
    assert (None, 2) == (talked.error, talked.output_tokens)
