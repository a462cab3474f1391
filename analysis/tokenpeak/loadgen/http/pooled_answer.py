"""Answer of a pooling model: one JSON object, with a result for each text that was sent, and its usage.

It is whole when its last byte arrives, and that is when the request ended. Nothing is generated, so there are neither
first tokens nor gaps between tokens.

Failures: `http_NNN`, `malformed_answer` (no JSON object of the API), `wrong_results` (more or fewer than
texts), `no_usage`, `bad_usage` (a count that is none).
"""

import json
from typing import Any

from tokenpeak.loadgen.http.connection import Exchange
from tokenpeak.loadgen.http.stream import DETAIL_CHARACTERS, Reply, received, usage_counts


def read_pooled(exchange: Exchange, start: float, *, results: int) -> Reply:
    """The exchange as a reply on the clock that began at `start`; `results` is how many the answer must hold."""
    error, detail = exchange.error, exchange.detail
    usage: dict[str, int | None] = {}
    if error is None and exchange.status is not None:
        body = received(exchange)[0]
        if exchange.status != 200:
            error, detail = f"http_{exchange.status}", body[:DETAIL_CHARACTERS].decode(errors="replace")
        else:
            usage, fault = _counted(body, results)
            error, detail = fault or (None, detail)

    def at(moment: float | None) -> float | None:
        return None if moment is None else moment - start

    return Reply(
        index=exchange.index,
        turn=exchange.turn,
        due_s=exchange.due - start,
        sent_s=at(exchange.sent),
        first_byte_s=at(exchange.times[0] if exchange.times else None),
        first_token_s=None,
        last_token_s=at(exchange.times[-1] if exchange.times and error is None else None),
        input_tokens=usage.get("input_tokens"),
        cached_tokens=usage.get("cached_tokens"),
        output_tokens=None,
        events=0,
        event_times_us=b"",
        status=exchange.status,
        error=error,
        detail=detail,
    )


def _counted(body: bytes, results: int) -> tuple[dict[str, int | None], tuple[str, str] | None]:
    """The usage of an answer, and its fault if it has one."""
    answer = _object(body)
    # `results` of a ranking, `data` of all others.
    held = None if answer is None else answer.get("data", answer.get("results"))
    if answer is None or not isinstance(held, list):
        return {}, ("malformed_answer", body[:DETAIL_CHARACTERS].decode(errors="replace"))
    if len(held) != results:
        return {}, ("wrong_results", f"the answer held {len(held)} results for {results} texts")
    given = answer.get("usage")
    try:
        usage = usage_counts(given if isinstance(given, dict) else None)
    except (ValueError, AttributeError) as count:
        return {}, ("bad_usage", str(count))
    if usage.get("input_tokens") is None:
        return {}, ("no_usage", "the answer held no usage.prompt_tokens")
    return usage, None


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
