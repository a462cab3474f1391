"""Replies as the load client observes them, for what is computed from them."""

from array import array
from typing import Any

from tokenpeak.loadgen.http.stream import Reply


def reply(index: int, sent: float, **keys: Any) -> Reply:
    """A reply half a second long: its first token after 0.1 s, then four gaps of 0.1 s."""
    values: dict[str, Any] = {
        "index": index,
        "turn": None,
        "due_s": sent,
        "sent_s": sent,
        "first_byte_s": sent + 0.1,
        "first_token_s": sent + 0.1,
        "last_token_s": sent + 0.5,
        "input_tokens": 10,
        "cached_tokens": None,
        "output_tokens": 5,
        "events": 5,
        "event_times_us": array("i", [100_000] * 4).tobytes(),
        "status": 200,
        "error": None,
        "detail": "",
    }
    return Reply(**{**values, **keys})


def steady(number: int = 200, **keys: Any) -> list[Reply]:
    """Two in flight at a time, each half a second long."""
    return [reply(index, 0.25 * index, **keys) for index in range(number)]
