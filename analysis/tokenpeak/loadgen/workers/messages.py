"""Messages between a worker pool and its workers, local and remote: typed, frozen, bounded.

A worker of this machine begins with `Prepared`; a load host with `Hello`, is sent `Prepare`, then says `Prepared`. Then
for each load: `Assign`, `Ready`, `Begin`, any number of `LoadProgress`, and one `Observation`. `Ping` reads a load
host's clock, `Halt` cuts a load short, `WorkerFailure` is a load host's last one. A worker ends when its input does.

Bounds are checked where a message comes from another machine (`wire`). No framework: the process that sends imports it.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from annotated_types import Ge, Le, MaxLen
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.http.stream import DETAIL_CHARACTERS, Count, Reply, Seconds

Text = Annotated[str, MaxLen(2 * DETAIL_CHARACTERS)]
Duration = Annotated[float, Ge(0), Le(1e12)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepare:
    """To a load host: start so many worker processes."""

    processes: int
    kind: Literal["prepare"] = "prepare"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ping:
    """To a load host: send your clock."""

    kind: Literal["ping"] = "ping"


@dataclass(frozen=True, kw_only=True, slots=True)
class Assign:
    """The worker's share of a load; `certificates` is the text of the controller's own CA file, for a load host."""

    assignment: LoadAssignment
    certificates: str | None = None
    kind: Literal["assign"] = "assign"


@dataclass(frozen=True, kw_only=True, slots=True)
class Begin:
    """Offer what was assigned from `at_s` on, in `perf_counter` seconds of the worker's machine."""

    at_s: float
    kind: Literal["begin"] = "begin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """Cut the load that is under way short."""

    why: str
    kind: Literal["halt"] = "halt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """From a load host: which TokenPeak it runs, and how many cores it has."""

    source: Text
    cores: Count
    kind: Literal["hello"] = "hello"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """So many processes are ready for an assignment."""

    processes: Count
    kind: Literal["prepared"] = "prepared"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pong:
    """A load host's clock, in its `perf_counter` seconds."""

    at_s: Seconds
    kind: Literal["pong"] = "pong"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """The assignment is held; only its start is awaited."""

    kind: Literal["ready"] = "ready"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadProgress:
    """How far a load is, about once a second; `packets` estimates tokens until the packets are read."""

    ended: Count
    ok: Count
    in_flight: Count
    packets: Count
    ttft_s_p50: Seconds | None
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostShare:
    """One load host's part of a load."""

    load_host: Text
    requests: int
    processes: int
    cpu_s: float
    began_late_s: float
    clock_error_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadObservation:
    """Observation of a load. `start` is in `perf_counter` seconds; replies are in order of their index."""

    replies: tuple[Reply, ...]
    lags: Annotated[tuple[Seconds, ...], MaxLen(10_000_000)]
    start: Seconds
    wall_s: Duration
    cpu_s: Duration
    busiest_share: Annotated[float, Ge(0), Le(1e6)]
    """CPU time of the busiest process ÷ wall-clock."""
    processes: Count
    stopped: Text | None
    segments: tuple[Count, Count, Count, Count] = (0, 0, 0, 0)
    """TCP segments received, of them out of order, sent, and of them sent again."""
    outages: Annotated[tuple[tuple[Seconds, Seconds], ...], MaxLen(10_000)] = ()
    """When the path to the server was interrupted, in seconds after the start."""
    hosts: Annotated[tuple[HostShare, ...], MaxLen(1000)] = ()
    """Each load host's part; empty when this machine offered all of it."""
    kind: Literal["observation"] = "observation"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFailure:
    """Why a load host ends."""

    text: str
    kind: Literal["failure"] = "failure"


ToWorker = Prepare | Ping | Assign | Begin | Halt
FromWorker = Hello | Prepared | Pong | Ready | LoadProgress | LoadObservation | WorkerFailure


MOST_LISTS, MOST_VALUES = 2_000_000, 40_000_000
"""Of a message: an object for each request, with its fields. An empty list is two bytes here and 56 in memory."""
_CONFIG = ConfigDict(
    strict=True,
    extra="forbid",
    allow_inf_nan=False,
    ser_json_bytes="base64",
    val_json_bytes="base64",
    defer_build=True,
)
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
    package = Path(__file__).resolve().parents[2]
    folders = ("loadgen", "results", "records", "spec")
    for path in sorted([*package.glob("*.py"), *(path for name in folders for path in (package / name).rglob("*.py"))]):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
