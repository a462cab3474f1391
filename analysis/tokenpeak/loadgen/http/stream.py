"""Token stream of a response, read from its stamped packets: tokens, times, usage, and what went wrong.

An event's time is when its last byte arrived. An event carries tokens when it has a choice, except the one that only
opens a chat message (a role without content) and one that only says why generation ended (a finish reason on an empty
delta). A completion event with empty text still carries a token: detokenizers hold back incomplete characters.
A reasoning model's thoughts are tokens, too; its answer begins with the first text or tool call beside them.

Failures: `http_NNN`, `stream_error` (the server reported one in an event), `malformed_stream` (an event that is no JSON
object of the API, is too long, or is one of too many), `truncated` (the stream ended before the server said so),
`no_tokens`, `no_usage`, `bad_usage` (a count that is none).
"""

import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from annotated_types import Ge, Le, MaxLen, Predicate
from httptools import HttpParserError, HttpResponseParser

from tokenpeak.loadgen.http.connection import Exchange

DETAIL_CHARACTERS = 300
LEARNING_EVENTS = 8
EVENT_LIMIT_BYTES = 1 << 20
BLOCKS_LIMIT = 300_000
"""The most blocks of a stream that are looked at one by one; token events that are alike do not count."""
COUNT_LIMIT = 100_000_000
"""The most tokens that a request can be said to have had."""
NUMBER_LIMIT = 1e12
Count = Annotated[int, Ge(0), Le(COUNT_LIMIT)]
Seconds = Annotated[float, Ge(-NUMBER_LIMIT), Le(NUMBER_LIMIT)]
_GAP_BYTES = 4
_LONGEST_GAP_US = (1 << 31) - 1
_SPOT = re.compile(rb'("(?:text|content|reasoning|reasoning_content)":\s*")[^"\\]+(")')


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A request as observed; times are on the run's clock. Bounds are checked where a load host sends one (`wire`)."""

    index: Annotated[int, Ge(0), Le(1 << 62)]
    turn: Count | None
    due_s: Seconds
    sent_s: Seconds | None
    first_byte_s: Seconds | None
    first_token_s: Seconds | None
    last_token_s: Seconds | None
    first_answer_s: Seconds | None = None
    input_tokens: Count | None
    cached_tokens: Count | None
    output_tokens: Count | None
    events: Count
    event_times_us: Annotated[bytes, Predicate(lambda gaps: len(gaps) % _GAP_BYTES == 0)]
    """Microseconds between token events, each an int32."""
    status: Annotated[int, Ge(0), Le(999)] | None
    error: Annotated[str, MaxLen(2 * DETAIL_CHARACTERS)] | None
    detail: Annotated[str, MaxLen(2 * DETAIL_CHARACTERS)]
    adapter: Annotated[str, MaxLen(DETAIL_CHARACTERS)] | None = None


class _Body:
    """The bodies of a response's chunks as the parser hands them out, joined at once: a chunk may be of one byte."""

    __slots__ = ("content", "on_body")

    def __init__(self) -> None:
        self.content = bytearray()
        self.on_body = self.content.extend


def received(exchange: Exchange) -> tuple[bytes, list[int]]:
    """The response's body, and how many bytes of it had come with each packet."""
    sink = _Body()
    parser = HttpResponseParser(sink)
    content = sink.content
    feed = parser.feed_data
    lengths: list[int] = []
    try:
        for packet in exchange.packets:
            feed(packet)
            lengths.append(len(content))
    except HttpParserError:
        # The connection met the same error while the packets came, and has recorded it.
        lengths += [len(content)] * (len(exchange.packets) - len(lengths))
    return bytes(content), lengths


def _data(block: bytes) -> bytes | None:
    """The data of an event; None for a comment or an event without data. A block that is no event says itself."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = block.replace(b"\r", b"").split(b"\n")
    data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
    if data:
        return data
    return None if all(not line or line.startswith((b":", b"event:", b"id:", b"retry:")) for line in lines) else block


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _separator(body: bytes) -> bytes:
    return b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"


class _Events:
    """The events of a body, read by `read`; whatever was read before a fault remains.

    The events of a stream differ in their text alone, so one that begins and ends like an earlier token event, with no
    quote between, is another and needs no parser. That is most of them. A text ends where that ending does, which has
    the blank line after the event in it: no text can.
    """

    __slots__ = ("answer_end", "blank_ends", "done", "fault", "finished", "token_ends", "usage")

    def __init__(self) -> None:
        self.token_ends: list[int] = []
        """The body offset at which each event with tokens ended."""
        self.answer_end: int | None = None
        """The body offset at which the first event of the answer ended, after all thoughts."""
        self.usage: dict[str, Any] | None = None
        self.finished = False
        self.blank_ends = 0
        """Completion events of no text that only say why generation ended."""
        self.done = False
        self.fault: tuple[str, str] | None = None

    def read(self, body: bytes) -> None:
        """Read all events, or those before the first that is no object; raises what an odd shape makes Python raise."""
        separator = _separator(body)
        width = len(separator)
        ended = self.token_ends.append
        opening = closing = b""
        position = parsed = blocks = 0
        while (end := body.find(separator, position)) >= 0:
            blocks += 1
            if end - position > EVENT_LIMIT_BYTES or blocks > BLOCKS_LIMIT:
                long = (
                    f"an event of {end - position} bytes" if blocks <= BLOCKS_LIMIT else f"over {BLOCKS_LIMIT} events"
                )
                self.fault = ("malformed_stream", f"{long} in one response")
                break
            block = body[position:end]
            position = end + width
            data = _data(block)
            if data is None:
                continue
            if data == b"[DONE]":
                self.done = True
                continue
            event = _object(data)
            if event is None:
                self.fault = ("malformed_stream", data[:DETAIL_CHARACTERS].decode(errors="replace"))
                break
            parsed += 1
            if not self._take(event):
                continue
            ended(position)
            if self.answer_end is None and _is_answer(event, is_first=len(self.token_ends) == 1):
                # What is learned of thoughts is not what an answer looks like.
                self.answer_end, opening, parsed = position, b"", 0
            if not opening and parsed <= LEARNING_EVENTS:
                spot = _SPOT.search(block)
                if spot is not None:
                    opening, closing = block[: spot.end(1)], block[spot.start(2) :] + separator
            if not opening:
                continue
            starts, find = body.startswith, body.find
            begin, rest = len(opening), len(closing)
            while starts(opening, position):
                text = position + begin
                quote = find(b'"', text)
                if not starts(closing, quote):
                    break
                position = quote + rest
                ended(position)
        self.done = self.done or body[position : position + EVENT_LIMIT_BYTES].strip() == b"data: [DONE]"

    def _take(self, event: dict[str, Any]) -> bool:
        """Note what an event says beside tokens; whether it carries tokens."""
        if event.get("usage"):
            self.usage = event["usage"]
        if "error" in event and self.fault is None:
            self.fault = ("stream_error", json.dumps(event["error"])[:DETAIL_CHARACTERS])
        if _finished(event):
            self.finished = True
            self.blank_ends += event["choices"][0].get("text") == ""
        return _carries_tokens(event)


def _finished(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    return bool(choices and choices[0].get("finish_reason"))


def _carries_tokens(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    if not choices:
        return False
    choice = choices[0]
    delta = choice.get("delta")
    if delta is None:
        return "text" in choice
    for key in ("content", "reasoning_content", "reasoning", "tool_calls"):
        if delta.get(key):
            return True
    return not delta.get("role") and choice.get("finish_reason") is None and "content" in delta


def _is_answer(event: dict[str, Any], *, is_first: bool) -> bool:
    """Whether an event with tokens has some of the answer; a blank one after others belongs to the thoughts."""
    delta = event["choices"][0].get("delta")
    if delta is None or delta.get("content") or delta.get("tool_calls"):
        return True
    return is_first and not (delta.get("reasoning_content") or delta.get("reasoning"))


def text_of(exchange: Exchange) -> str:
    """The engine's whole text; events of another shape say nothing."""
    body = received(exchange)[0]
    blocks = body.split(_separator(body), BLOCKS_LIMIT)[:BLOCKS_LIMIT]
    events = (_object(data) for block in blocks if len(block) <= EVENT_LIMIT_BYTES and (data := _data(block)))
    return "".join(text for event in events if event is not None for text in _texts(event))


def _texts(event: dict[str, Any]) -> Iterator[str]:
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        text = (delta.get("content") if isinstance(delta, dict) else None) or choice.get("text")
        if isinstance(text, str):
            yield text


def _token_times(exchange: Exchange, lengths: list[int], token_ends: list[int]) -> list[float]:
    """When each event with tokens was whole: at the packet that brought its last byte."""
    times = exchange.times
    return [times[bisect_left(lengths, end)] for end in token_ends]


def _gaps(times: list[float]) -> bytes:
    """Microseconds between these moments, each an int32."""
    gaps = [int((late - early) * 1e6 + 0.5) for early, late in pairwise(times)]
    try:
        return array("i", gaps).tobytes()
    except OverflowError:
        return array("i", [min(gap, _LONGEST_GAP_US) for gap in gaps]).tobytes()


def read(exchange: Exchange, start: float, *, events_for_usage: bool = False) -> Reply:
    """The exchange as a reply on the clock that began at `start`.

    `events_for_usage`: where the stream held no usage, its events with text count as the output tokens.
    """
    error, detail = exchange.error, exchange.detail
    body, lengths = received(exchange)
    events = _Events()
    usage: dict[str, int | None] = {}
    first_token = last_token = first_answer = None
    gaps = b""
    if exchange.status is not None and exchange.status != 200:
        error = error or f"http_{exchange.status}"
        detail = detail or body[:DETAIL_CHARACTERS].decode(errors="replace")
    elif exchange.status is not None:
        fault: tuple[str, str] | None = None
        try:
            events.read(body)
            usage = usage_counts(events.usage)
        except ValueError as count:
            fault = ("bad_usage", str(count))
        except (AttributeError, IndexError, KeyError, TypeError) as shape:
            fault = ("malformed_stream", f"an event is not of the API's shape: {shape!r}"[:DETAIL_CHARACTERS])
        if events.token_ends:
            times = _token_times(exchange, lengths, events.token_ends)
            first_token, last_token = times[0], times[-1]
            gaps = _gaps(times)
            if events.answer_end is not None:
                (first_answer,) = _token_times(exchange, lengths, [events.answer_end])
        fault = events.fault or fault
        if events_for_usage and events.usage is None:
            usage = {"output_tokens": len(events.token_ends) - events.blank_ends}
        if fault is None:
            if not events.done and not events.finished:
                fault = ("truncated", "the stream ended without [DONE] and without a finish reason")
            elif not events.token_ends:
                fault = ("no_tokens", "the stream held no event with a token")
            elif usage.get("output_tokens") is None:
                fault = ("no_usage", "the stream held no usage; the server ignores stream_options.include_usage")
        if error is None and fault is not None:
            error, detail = fault

    def at(moment: float | None) -> float | None:
        return None if moment is None else moment - start

    return Reply(
        index=exchange.index,
        turn=exchange.turn,
        due_s=exchange.due - start,
        sent_s=at(exchange.sent),
        first_byte_s=at(exchange.times[0] if exchange.times else None),
        first_token_s=at(first_token),
        last_token_s=at(last_token),
        first_answer_s=at(first_answer),
        input_tokens=usage.get("input_tokens"),
        cached_tokens=usage.get("cached_tokens"),
        output_tokens=usage.get("output_tokens"),
        events=len(events.token_ends),
        event_times_us=gaps,
        status=exchange.status,
        error=error,
        detail=detail,
        adapter=exchange.adapter,
    )


def usage_counts(usage: dict[str, Any] | None) -> dict[str, int | None]:
    """The token counts of a usage; empty without one. Raises ValueError for one that is no count."""
    if usage is None:
        return {}
    return {
        "input_tokens": _count(usage, "prompt_tokens"),
        "output_tokens": _count(usage, "completion_tokens"),
        "cached_tokens": _count(usage.get("prompt_tokens_details") or {}, "cached_tokens"),
    }


def _count(usage: dict[str, Any], name: str) -> int | None:
    value = usage.get(name)
    if value is None:
        return None
    # A bool is an int, and counts nothing.
    if type(value) is not int or not 0 <= value <= COUNT_LIMIT:
        raise ValueError(f"usage says {name} = {repr(value)[:60]}, which is no count of tokens")
    return value
