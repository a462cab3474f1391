"""What a controller and a load host say to each other: one JSON object a line, over the pipe of an SSH connection.

To the host: `hire` (processes), `ping`, `offer` (an order), `go` (its start on the host's clock), `halt` (why). From
the host: `hello` (source, cores), `hired`, `pong` (its clock), `ready`, `progress`, `seen` (an observation), `trouble`
(in words). Nothing is unpickled: a host can send figures, not code.
"""

import base64
import hashlib
import json
from array import array
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tokenpeak.load.crew import Observation, Progress
from tokenpeak.load.order import Order
from tokenpeak.load.stream import COUNT_LIMIT, DETAIL_CHARACTERS, Reply

Message = dict[str, Any]

NUMBER_LIMIT = 1e12
_COUNTED = ("ended", "ok", "in_flight", "packets")
_REPLY = tuple(field.name for field in fields(Reply))
_SEEN = ("lags", "start", "wall_s", "cpu_s", "busiest_share", "processes", "stopped", "segments", "outages")


_Number = Annotated[float, Field(ge=-NUMBER_LIMIT, le=NUMBER_LIMIT, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=COUNT_LIMIT)]
_Words = Annotated[str, Field(max_length=2 * DETAIL_CHARACTERS)]


class _ReplyShape(BaseModel):
    """A reply whose fields have the types and ranges of one."""

    model_config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)

    index: Annotated[int, Field(ge=0, lt=1 << 62)]
    turn: _Count | None
    due_s: _Number
    sent_s: _Number | None
    first_byte_s: _Number | None
    first_token_s: _Number | None
    last_token_s: _Number | None
    input_tokens: _Count | None
    cached_tokens: _Count | None
    output_tokens: _Count | None
    events: _Count
    event_times_us: Any
    status: Annotated[int, Field(ge=0, le=999)] | None
    error: _Words | None
    detail: _Words
    resent: bool


class _SeenShape(BaseModel):
    """The rest of an observation, likewise."""

    model_config = ConfigDict(strict=True, extra="forbid")

    lags: Annotated[list[_Number], Field(max_length=10_000_000)]
    start: _Number
    wall_s: Annotated[float, Field(ge=0, le=NUMBER_LIMIT, allow_inf_nan=False)]
    cpu_s: Annotated[float, Field(ge=0, le=NUMBER_LIMIT, allow_inf_nan=False)]
    busiest_share: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    processes: _Count
    stopped: _Words | None
    segments: tuple[_Count, _Count, _Count, _Count]
    outages: Annotated[tuple[tuple[_Number, _Number], ...], Field(max_length=10_000)]


class _Ordered(BaseModel):
    """An order with its bytes as base64."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    order: Order


def encoded(kind: str, **content: Any) -> bytes:
    """A message as its line."""
    return json.dumps({"kind": kind, **content}, separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> Message:
    """A line as its message; raises ValueError for what is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ValueError(f"no message: {line[:100]!r}")
    return message


def order_text(order: Order) -> str:
    """An order as it travels."""
    return _Ordered(order=order).model_dump_json()


def order_of(text: str) -> Order:
    """An order that has come; raises ValueError when it is none."""
    return _Ordered.model_validate_json(text).order


def observation_content(seen: Observation) -> Message:
    """An observation as it travels: replies as rows in the order of Reply's fields."""
    rows = [
        [
            base64.b64encode(reply.event_times_us.tobytes()).decode()
            if name == "event_times_us"
            else getattr(reply, name)
            for name in _REPLY
        ]
        for reply in seen.replies
    ]
    return {"replies": rows, **{name: getattr(seen, name) for name in _SEEN}}


def progress_of(content: Mapping[str, Any]) -> Progress:
    """Progress that has come; what is no number in it counts as nothing."""
    told = content.get("progress")
    found = told if isinstance(told, dict) else {}
    progress: Progress = {name: _progress_number(found.get(name)) or 0 for name in _COUNTED}
    progress["ttft_s_p50"] = _progress_number(found.get("ttft_s_p50"))
    return progress


def _progress_number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) and 0 <= value <= NUMBER_LIMIT else None


def observation_of(content: Mapping[str, Any]) -> Observation:
    """An observation that has come; raises ValueError when it is none, or holds what none can."""
    try:
        replies = []
        for row in content["replies"]:
            values = dict(zip(_REPLY, row, strict=True))
            values["event_times_us"] = array("i", base64.b64decode(values["event_times_us"]))
            replies.append(_ReplyShape.model_validate(values))
        seen = _SeenShape.model_validate_json(json.dumps({name: content[name] for name in _SEEN}))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no observation: {str(error)[:300]}") from error
    found = {**dict(seen), "lags": tuple(seen.lags)}
    return Observation(replies=tuple(Reply(**dict(reply)) for reply in replies), **found)


@cache
def source_digest() -> str:
    """Which TokenPeak this is, by the bytes of its load client: two hosts that differ must not measure together."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    for path in sorted([*package.glob("*.py"), *package.glob("load/*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
