"""Load assignment: what a worker process sends, and where; its requests in order, and each one's payload.

Plain records: the hot path imports no framework.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Self

from tokenpeak.loadgen.http.connection import Exchange
from tokenpeak.loadgen.http.stream import text_of

BASE = "base"
"""The adapter of a request that asks the model itself, as in spec/workload.py."""


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
    """A user's part of a conversation: its messages, how long the answer may be, and what stands for it later."""

    messages: tuple[dict[str, Any], ...]
    output_tokens: int
    answer: dict[str, Any] | None = None
    """The answer in the history of further turns; None: the text that the engine answered."""
    options: dict[str, Any] | None = None
    """Options of its body besides those of all turns; one that is None is left out."""


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
    """The rest of a conversation's body, besides its messages."""
    think_time_s: float = 0.0
    adapters: tuple[str, ...] = ()
    """The adapter of each request, or of each conversation, in turn; empty: all ask the model."""
    model: str = ""
    """The model that the bodies ask, in whose place a request asks its adapter."""
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
    events_for_usage: bool = False
    """A stream without usage counts each event with text as a token."""
    results: int | None = None
    """Results that each answer must hold, of a pooling model; None: answers are streams of tokens."""
    stall_s: float = 120.0
    deadline_s: float = 900.0

    def most_workers(self, workers: int) -> int:
        """How many of so many workers have something to do: three workers at most share a level of three streams."""
        least = min((cap for _, cap in self.caps if cap > 0), default=workers)
        return max(1, min(workers, least, self.max_in_flight or workers))

    def share(self, part: int, parts: int) -> Self:
        """The share of worker `part` of `parts`: every `parts`-th request, its part of each cap."""
        if parts == 1:
            return self

        def slice_of(total: int) -> int:
            return total // parts + (part < total % parts)

        return replace(
            self,
            templates=self.templates[part::parts] or self.templates,
            conversations=self.conversations[part::parts] or self.conversations,
            adapters=self.adapters[part::parts] or self.adapters,
            due_s=None if self.due_s is None else self.due_s[part::parts],
            caps=tuple((offset, slice_of(cap)) for offset, cap in self.caps),
            max_in_flight=None if self.max_in_flight is None else max(1, slice_of(self.max_in_flight)),
            requests=None if self.requests is None else slice_of(self.requests),
            first=self.first + part * self.stride,
            stride=self.stride * parts,
        )


class ConversationState:
    """A conversation under way: its messages so far."""

    __slots__ = ("conversation", "messages", "turn")

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.turn = 0
        self.messages: list[dict[str, Any]] = []
        if conversation.starter:
            self.messages.append({"role": "system", "content": conversation.starter})


def payload(assignment: LoadAssignment, exchange: Exchange) -> bytes:
    """The bytes that go out on the connection for an exchange."""
    conversation = exchange.conversation
    if isinstance(conversation, ConversationState):
        body = _turn_body(assignment, conversation, exchange.adapter)
    else:
        templates = assignment.templates
        number = (exchange.index - assignment.first) // assignment.stride
        template = templates[number % len(templates)]
        salt = template.salt
        if assignment.resalt and number >= len(templates):
            salt = _salt(assignment.salt_ids, exchange.index, salt)
        prefix = template.prefix
        if exchange.adapter not in (None, BASE):
            # The model stands before the prompt, which may say anything.
            prefix = prefix.replace(_asked(assignment.model), _asked(exchange.adapter), 1)
        body = prefix + salt + template.suffix
    return assignment.target.head + b"content-length: %d\r\n\r\n" % len(body) + body


def _asked(model: str | None) -> bytes:
    return b'"model":' + json.dumps(model).encode()


def _turn_body(assignment: LoadAssignment, conversation: ConversationState, adapter: str | None) -> bytes:
    turn = conversation.conversation.turns[conversation.turn]
    messages = [*conversation.messages, *turn.messages]
    options = dict(assignment.conversation_options or {})
    if adapter not in (None, BASE):
        options["model"] = adapter
    for key in ("max_tokens", "min_tokens"):
        if key in options:
            options[key] = turn.output_tokens
    options |= turn.options or {}
    given = {key: value for key, value in options.items() if value is not None}
    return json.dumps({**given, "messages": messages}).encode()


def _salt(ids: tuple[int, ...], index: int, like: bytes) -> bytes:
    """A salt as long as `like`, of this request's own."""
    if not ids:
        return b"%08d " % index
    words = []
    for _ in range(like.count(b",")):
        words.append(b"%d," % ids[index % len(ids)])
        index = index // len(ids) + 7 * len(words)
    return b"".join(words)


class RequestSource:
    """Requests of an assignment, in order: when each is due, how many may be in flight, and when there are no more.

    `start` must be set before the first request; times are `perf_counter` seconds.
    """

    def __init__(self, assignment: LoadAssignment) -> None:
        self.start = 0.0
        self.cap = assignment.caps[0][1] if assignment.caps else assignment.max_in_flight
        """How many may be in flight now; None: any number."""
        self.later: list[tuple[float, Exchange]] = []
        """Further turns of conversations whose user still thinks, with the moment when each is due."""
        self._assignment = assignment
        self._cap_changes = deque(assignment.caps[1:])
        self._next = 0
        self._begun = 0
        """Requests that the timetable has begun: all, or the first turns of conversations."""
        self._measured_from: float | None = None
        self._stopped = False

    def exhausted(self) -> bool:
        """Whether no request begins any more."""
        assignment = self._assignment
        if assignment.due_s is None:
            return self._all_sent()
        return self._stopped or self._begun >= len(assignment.due_s) or self._reached_number()

    def _all_sent(self) -> bool:
        return self._stopped or self._reached_number() or (self._assignment.duration_s is not None and self._is_over())

    def _reached_number(self) -> bool:
        return self._assignment.requests is not None and self._next >= self._assignment.requests

    def _is_over(self) -> bool:
        """Whether the bound by time has passed; it counts from the first measured request."""
        assignment = self._assignment
        assert assignment.duration_s is not None
        if self._measured_from is None:
            if self._next * assignment.stride + assignment.first < assignment.warmup_requests:
                return False
            self._measured_from = max(perf_counter(), self.start)
        return perf_counter() >= self._measured_from + assignment.duration_s

    def _exchange(self, due: float) -> Exchange:
        exchange = Exchange(self._next * self._assignment.stride + self._assignment.first, due)
        self._next += 1
        return exchange

    def take(self, due: float) -> Exchange:
        """The next request of the run, due at `due`."""
        conversations = self._assignment.conversations
        exchange = self._exchange(due)
        if conversations:
            exchange.conversation = ConversationState(conversations[self._begun % len(conversations)])
            exchange.turn = 0
        if adapters := self._assignment.adapters:
            exchange.adapter = adapters[self._begun % len(adapters)]
        self._begun += 1
        return exchange

    def due(self, now: float) -> Iterator[Exchange]:
        """The requests that have become due; a change of the cap that has is made."""
        due_s = self._assignment.due_s
        while self._cap_changes and self.start + self._cap_changes[0][0] <= now:
            self.cap = self._cap_changes.popleft()[1]
        while self.later and self.later[0][0] <= now:
            moment, exchange = self.later.pop(0)
            exchange.due = moment
            yield exchange
        while due_s is not None and not self.exhausted() and self.start + due_s[self._begun] <= now:
            yield self.take(self.start + due_s[self._begun])

    def next_moment(self) -> float | None:
        """When something is due next; None when nothing is but what a free slot makes due."""
        moments = []
        if self._cap_changes:
            moments.append(self.start + self._cap_changes[0][0])
        if self.later:
            moments.append(self.later[0][0])
        if self._assignment.due_s is not None and not self.exhausted():
            moments.append(self.start + self._assignment.due_s[self._begun])
        return min(moments, default=None)

    def following(self, exchange: Exchange) -> Exchange | None:
        """The conversation's next turn after this answer where it is due at once; one with think time comes later."""
        conversation = exchange.conversation
        if not isinstance(conversation, ConversationState):
            return None
        turns = conversation.conversation.turns
        turn = turns[conversation.turn]
        conversation.turn += 1
        if conversation.turn >= len(turns) or self._all_sent():
            return None
        conversation.messages += [
            *turn.messages,
            turn.answer or {"role": "assistant", "content": text_of(exchange)},
        ]
        due = (exchange.ended or perf_counter()) + self._assignment.think_time_s
        following = self._exchange(due)
        following.conversation = conversation
        following.turn = conversation.turn
        following.adapter = exchange.adapter
        if self._assignment.think_time_s == 0:
            return following
        self.later.append((due, following))
        self.later.sort(key=lambda item: item[0])
        return None

    def stop(self) -> list[Exchange]:
        """Let no request begin any more; returns those that were to come later."""
        self._stopped = True
        cut = [exchange for _, exchange in self.later]
        self.later.clear()
        return cut
