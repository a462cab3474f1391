"""Requests of a load assignment, in order: when each is due, how many may be in flight, and when there are no more."""

from collections import deque
from collections.abc import Iterator
from time import perf_counter

from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.http.connection import Exchange
from tokenpeak.loadgen.http.payload import ConversationState
from tokenpeak.loadgen.http.stream import text_of


class RequestSource:
    """What is still to be sent. `start` must be set before the first request; times are `perf_counter` seconds."""

    def __init__(self, assignment: LoadAssignment) -> None:
        self.start = 0.0
        self.cap = assignment.caps[0][1] if assignment.caps else assignment.max_in_flight
        """How many may be in flight now; None: any number."""
        self.later: list[tuple[float, Exchange]] = []
        """Further turns of conversations whose user still thinks, with the moment when each is due."""
        self._assignment = assignment
        self._cap_changes = deque(assignment.caps[1:])
        self._next = 0
        self._conversations_begun = 0
        self._measured_from: float | None = None
        self._stopped = False

    def exhausted(self) -> bool:
        """Whether no request begins any more."""
        assignment = self._assignment
        if assignment.due_s is None:
            return self._all_sent()
        return self._stopped or self._next >= len(assignment.due_s) or self._reached_number()

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
            exchange.conversation = ConversationState(conversations[self._conversations_begun % len(conversations)])
            exchange.turn = 0
            self._conversations_begun += 1
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
        while due_s is not None and not self.exhausted() and self.start + due_s[self._next] <= now:
            yield self.take(self.start + due_s[self._next])

    def next_moment(self) -> float | None:
        """When something is due next; None when nothing is but what a free slot makes due."""
        moments = []
        if self._cap_changes:
            moments.append(self.start + self._cap_changes[0][0])
        if self.later:
            moments.append(self.later[0][0])
        if self._assignment.due_s is not None and not self.exhausted():
            moments.append(self.start + self._assignment.due_s[self._next])
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
            {"role": "user", "content": turn.text},
            {"role": "assistant", "content": text_of(exchange)},
        ]
        due = (exchange.ended or perf_counter()) + self._assignment.think_time_s
        following = self._exchange(due)
        following.conversation = conversation
        following.turn = conversation.turn
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
