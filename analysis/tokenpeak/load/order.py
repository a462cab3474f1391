"""What a worker process is told to send. Plain records: this module and what the hot path needs import no framework."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where requests go. `head` is the request's head without its length; `host` and `port` are connected to."""

    host: str
    port: int
    tls: bool = False
    verify: bool = True
    ca_file: str | None = None
    head: bytes
    reuse_connections: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request's body in three parts, so that a repeated one can be given a fresh salt between them."""

    prefix: bytes
    salt: bytes = b""
    suffix: bytes = b""
    output_tokens: int | None = None
    """How many are asked for; None: the engine decides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A user's part of a conversation: what is said, and how long the answer may be."""

    text: str
    output_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """A conversation: its starter, then turns that each resend everything before them."""

    starter: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """When a run has failed its SLO beyond doubt: more than `violations` requests over a limit, or failed."""

    violations: int
    ttft_s: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A run, or one process's share of it.

    Exactly one of `due_s` (open loop: offsets from the start, ascending) and `caps` (closed loop: offset, concurrency)
    leads; an open loop may have a constant cap in `max_in_flight`. Request `i` of this share is request
    `i * stride + first` of the run, and sends `asks[i % len(asks)]`.
    """

    target: Target
    asks: tuple[Ask, ...] = ()
    talks: tuple[Talk, ...] = ()
    talk_options: dict[str, object] | None = None
    """Conversations: what a body holds besides its messages."""
    think_time_s: float = 0.0
    salt_ids: tuple[int, ...] = ()
    """Token ids that salts are written in; empty: salts are words."""
    resalt: bool = False
    """Give a repeated ask a salt of its own."""
    due_s: tuple[float, ...] | None = None
    caps: tuple[tuple[float, int], ...] = ()
    max_in_flight: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    warmup_requests: int = 0
    first: int = 0
    stride: int = 1
    stall_s: float = 120.0
    deadline_s: float = 900.0
    stop: Stop | None = None
