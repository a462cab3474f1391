"""Load assignment: what a worker process sends, and where. Plain records: the hot path imports no framework."""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where requests go. `head` is the request's head without its length; `host` and `port` are connected to."""

    host: str
    port: int
    tls: bool = False
    verify: bool = True
    ca_file: str | None = None
    head: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTemplate:
    """A request's body in three parts, so that a repeated one can be given a fresh salt between them."""

    prefix: bytes
    salt: bytes = b""
    suffix: bytes = b""
    output_tokens: int | None = None
    """How many are asked for; None: the engine decides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A user's part of a conversation: its text, and how long the answer may be."""

    text: str
    output_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """A conversation's starter, then turns that each resend everything before them."""

    starter: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadAssignment:
    """A run, or one worker's share of it.

    Exactly one of `due_s` (open loop: offsets from the start, ascending) and `caps` (closed loop: offset, concurrency)
    leads; an open loop may have a constant cap in `max_in_flight`. Request `i` of this share is request
    `i * stride + first` of the run, and sends `templates[i % len(templates)]`.
    """

    target: Target
    templates: tuple[RequestTemplate, ...] = ()
    conversations: tuple[Conversation, ...] = ()
    conversation_options: dict[str, object] | None = None
    """What a body of a conversation holds besides its messages."""
    think_time_s: float = 0.0
    salt_ids: tuple[int, ...] = ()
    """Token ids that salts are written in; empty: salts are words."""
    resalt: bool = False
    """Give a repeated template a salt of its own."""
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

    def most_workers(self, workers: int) -> int:
        """How many of so many workers have something to do: three workers at most share a level of three streams."""
        least = min((cap for _, cap in self.caps if cap > 0), default=workers)
        return max(1, min(workers, least, self.max_in_flight or workers))

    def share(self, part: int, parts: int) -> Self:
        """What worker `part` of `parts` does: every `parts`-th request, its part of each cap."""
        if parts == 1:
            return self

        def slice_of(total: int) -> int:
            return total // parts + (part < total % parts)

        return replace(
            self,
            templates=self.templates[part::parts] or self.templates,
            conversations=self.conversations[part::parts] or self.conversations,
            due_s=None if self.due_s is None else self.due_s[part::parts],
            caps=tuple((offset, slice_of(cap)) for offset, cap in self.caps),
            max_in_flight=None if self.max_in_flight is None else max(1, slice_of(self.max_in_flight)),
            requests=None if self.requests is None else slice_of(self.requests),
            first=self.first + part * self.stride,
            stride=self.stride * parts,
        )
