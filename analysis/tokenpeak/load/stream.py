"""What the stamped packets of an exchange say: tokens, times, usage, and what went wrong.

An event's time is when its last byte arrived. An event carries tokens when it has a choice, except the one that only
opens a chat message (a role without content) and one that only tells why generation ended (a finish reason on an empty
delta). A completion event with empty text still carries a token: detokenizers hold back incomplete characters.

Failures: `http_NNN`, `stream_error` (the server reported one in an event), `malformed_stream` (an event that is no JSON
object of the API), `truncated` (the stream ended before the server said so), `no_tokens`, `no_usage`.
"""

import json
import re
from array import array
from dataclasses import dataclass
from typing import Any

from httptools import HttpParserError, HttpResponseParser

from tokenpeak.load.connection import Exchange

DETAIL_CHARACTERS = 300
LEARNING_EVENTS = 8
_SPOT = re.compile(rb'("(?:text|content)":\s*")[^"\\]*(")')


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A request as observed; times are on the run's clock, gaps are microseconds between token events."""

    index: int
    turn: int | None
    due_s: float
    sent_s: float | None
    first_byte_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    events: int
    event_times_us: "array[int]"
    status: int | None
    error: str | None
    detail: str
    resent: bool


class _Body:
    """The bodies of a response's chunks as the parser hands them out."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)


def _received(exchange: Exchange) -> tuple[bytes, list[int]]:
    """The response's body, and how many bytes of it had come with each packet."""
    sink = _Body()
    parser = HttpResponseParser(sink)
    parts = sink.parts
    feed = parser.feed_data
    lengths: list[int] = []
    length = seen = 0
    try:
        for packet in exchange.packets:
            feed(packet)
            while seen < len(parts):
                length += len(parts[seen])
                seen += 1
            lengths.append(length)
    except HttpParserError:
        # The connection met the same error while the packets came, and has recorded it.
        lengths += [length] * (len(exchange.packets) - len(lengths))
    return b"".join(parts), lengths


@dataclass(slots=True)
class _Events:
    """The events of a body: each as an object, and the body offset at which it ended.

    None stands for one more of a kind: the events of a stream differ in their text alone, so one that begins and ends
    like an earlier token event, and holds no quote or escape between, needs no parser. That is most of them.
    """

    objects: list[dict[str, Any] | None]
    ends: list[int]
    done: bool = False
    bad: bytes | None = None
    """The first event that is no object, at which reading ended."""


def _data(block: bytes) -> bytes | None:
    """What an event says; None for a comment or an event without data. A block that is no event says itself."""
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
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _events(body: bytes, *, whole: bool = False) -> _Events:
    """The events of a body; `whole` parses every one."""
    separator = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    width = len(separator)
    blocks = body.split(separator)
    rest = blocks.pop()
    objects: list[dict[str, Any] | None] = []
    ends: list[int] = []
    found = _Events(objects, ends)
    prefix = suffix = b"\0"
    start = stop = offset = 0
    for block in blocks:
        offset += len(block) + width
        if block.startswith(prefix) and block.endswith(suffix):
            middle = block[start:stop]
            if b'"' not in middle and b"\\" not in middle and len(block) >= start - stop:
                objects.append(None)
                ends.append(offset)
                continue
        data = _data(block)
        if data is None:
            continue
        if data == b"[DONE]":
            found.done = True
            continue
        event = _object(data)
        if event is None:
            found.bad = data
            break
        objects.append(event)
        ends.append(offset)
        if start == 0 and not whole and len(objects) <= LEARNING_EVENTS:
            split = _SPOT.search(block)
            if split and _carries_tokens(event) and not _finished(event) and not event.get("usage"):
                prefix, suffix = block[: split.end(1)], block[split.start(2) :]
                start, stop = len(prefix), -len(suffix)
    found.done = found.done or rest.strip() == b"data: [DONE]"
    return found


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


def text_of(exchange: Exchange) -> str:
    """What the engine said, all of it."""
    events = _events(_received(exchange)[0], whole=True)
    return "".join(
        (choice.get("delta") or {}).get("content") or choice.get("text") or ""
        for event in events.objects
        if event is not None
        for choice in event.get("choices") or []
    )


def read(exchange: Exchange, start: float) -> Reply:
    """The exchange as a reply on the clock that began at `start`."""
    error, detail = exchange.error, exchange.detail
    body, lengths = _received(exchange)
    first_token = last_token = None
    gaps: array[int] = array("i")
    input_tokens = cached_tokens = output_tokens = None
    count = 0
    if exchange.status is not None and exchange.status != 200:
        error = error or f"http_{exchange.status}"
        detail = detail or body[:DETAIL_CHARACTERS].decode(errors="replace")
    elif exchange.status is not None:
        fault: tuple[str, str] | None = None
        times = exchange.times
        packet = 0
        previous = 0.0
        usage: dict[str, Any] | None = None
        finished = done = False
        try:
            events = _events(body)
            done = events.done
            if events.bad is not None:
                fault = ("malformed_stream", events.bad[:DETAIL_CHARACTERS].decode(errors="replace"))
            for event, end in zip(events.objects, events.ends, strict=True):
                if event is not None:
                    if event.get("usage"):
                        usage = event["usage"]
                    if "error" in event and fault is None:
                        fault = ("stream_error", json.dumps(event["error"])[:DETAIL_CHARACTERS])
                    finished = finished or _finished(event)
                    if not _carries_tokens(event):
                        continue
                while lengths[packet] < end:
                    packet += 1
                now = times[packet]
                if count:
                    gaps.append(int((now - previous) * 1e6 + 0.5))
                else:
                    first_token = now
                previous = last_token = now
                count += 1
            if usage is not None:
                input_tokens = usage.get("prompt_tokens")
                output_tokens = usage.get("completion_tokens")
                cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        except (AttributeError, IndexError, KeyError, TypeError) as shape:
            fault = ("malformed_stream", f"an event is not of the API's shape: {shape!r}")
        if fault is None:
            if not done and not finished:
                fault = ("truncated", "the stream ended without [DONE] and without a finish reason")
            elif not count:
                fault = ("no_tokens", "the stream held no event with a token")
            elif not isinstance(output_tokens, int):
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
        input_tokens=input_tokens,
        cached_tokens=cached_tokens,
        output_tokens=output_tokens,
        events=count,
        event_times_us=gaps,
        status=exchange.status,
        error=error,
        detail=detail,
        resent=exchange.resent,
    )
