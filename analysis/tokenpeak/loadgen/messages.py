"""Messages between a worker pool and its workers, local and remote: typed, frozen, bounded.

A worker of this machine begins with `Prepared`; a load host with `Hello`, is sent `Prepare`, then says `Prepared`. Then
for each load: `Assign`, `Ready`, `Begin`, any number of `LoadProgress`, and one `Observation`. `Ping` reads a load
host's clock, `Halt` cuts a load short, `WorkerFailure` is a load host's last one. A worker ends when its input does.

Bounds are checked where a message comes from another machine (`wire`). No framework: the process that sends imports it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, MaxLen

from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.stream import DETAIL_CHARACTERS, Count, Reply, Seconds

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
    """What one load host did of a load."""

    load_host: Text
    requests: int
    processes: int
    cpu_s: float
    began_late_s: float
    clock_error_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadObservation:
    """What was observed of a load. `start` is in `perf_counter` seconds; replies are in order of their index."""

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
