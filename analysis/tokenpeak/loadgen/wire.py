"""Messages to and from a load host as bytes: one JSON object a line, over the pipe of an SSH connection.

Nothing is unpickled: a host can send figures, not code. What breaks a type or a bound of `messages` is an error.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tokenpeak.loadgen.messages import FromWorker, LoadObservation, ToWorker

MOST_LISTS, MOST_VALUES = 2_000_000, 40_000_000
"""Of a message: an object for each request, with its fields. An empty list is two bytes here and 56 in memory."""
_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64")
_TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="kind")], config=_CONFIG)
_FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(Annotated[FromWorker, Field(discriminator="kind")], config=_CONFIG)

_Message = TypeVar("_Message")


def encode_to_worker(message: ToWorker) -> bytes:
    """A pool's message as its line."""
    return _TO_WORKER.dump_json(message) + b"\n"


def encode_from_worker(message: FromWorker) -> bytes:
    """A worker's message as its line."""
    return _FROM_WORKER.dump_json(message) + b"\n"


def decode_to_worker(line: bytes) -> ToWorker:
    """A pool's message; raises ValueError for what is none."""
    return _decoded(line, _TO_WORKER)


def decode_from_worker(line: bytes) -> FromWorker:
    """A worker's message; raises ValueError for what is none, or would expand beyond what one holds."""
    message = _decoded(line, _FROM_WORKER)
    if isinstance(message, LoadObservation) and len({reply.index for reply in message.replies}) < len(message.replies):
        raise ValueError("no message: two replies to one request")
    return message


def _decoded(line: bytes, kinds: TypeAdapter[_Message]) -> _Message:
    if line.count(b"[") + line.count(b"{") > MOST_LISTS or line.count(b",") > MOST_VALUES:
        raise ValueError(f"a message of more than {MOST_LISTS:,} lists or {MOST_VALUES:,} values")
    try:
        return kinds.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"no message: {where}: {first['msg']} ({line[:100]!r})"[:300]) from error


@cache
def source_digest() -> str:
    """Which TokenPeak this is, by the bytes of its load client: two hosts that differ must not measure together."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    folders = ("loadgen", "results", "records", "spec")
    for path in sorted([*package.glob("*.py"), *(path for name in folders for path in package.glob(f"{name}/*.py"))]):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
