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
from typing import Any

from pydantic import BaseModel, ConfigDict

from tokenpeak.load.crew import Observation
from tokenpeak.load.order import Order
from tokenpeak.load.stream import Reply

Message = dict[str, Any]

_REPLY = tuple(field.name for field in fields(Reply))
_SEEN = ("lags", "start", "wall_s", "cpu_s", "busiest_share", "processes", "stopped")


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
    except ValueError:
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


def observation_of(content: Mapping[str, Any]) -> Observation:
    """An observation that has come; raises ValueError when it is none."""
    try:
        replies = []
        for row in content["replies"]:
            values = dict(zip(_REPLY, row, strict=True))
            values["event_times_us"] = array("i", base64.b64decode(values["event_times_us"]))
            replies.append(Reply(**values))
        seen = {name: content[name] for name in _SEEN}
    except (KeyError, TypeError) as error:
        raise ValueError(f"no observation: {error}") from error
    return Observation(replies=tuple(replies), **{**seen, "lags": tuple(seen["lags"])})


@cache
def source_digest() -> str:
    """Which TokenPeak this is, by the bytes of its load client: two hosts that differ must not measure together."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    for path in sorted([*package.glob("*.py"), *package.glob("load/*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
