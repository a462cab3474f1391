"""The simulated engine's scheduler under a closed loop or a timetable, in virtual time: a judge of played runs.

It moves real tokens through real blocks, one step after another, and knows nothing of predictions: of the package it
has the scheduler and the duration of a step.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.physics import step_time_s
from tokenpeak.sim.scheduler import BlockPool, Scheduler, SchedulerLimits, Step
from tokenpeak.sim.sequence import Sequence as Tokens

API_REQUEST_S, API_PROMPT_TOKEN_S, API_STREAM_S = 0.0024, 0.0000011, 8 * 0.000052
"""What the API server was measured to take; the last for each stream that is open."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What the measured requests of a run met."""

    output_tok_per_s: float
    ttft_s: float
    tpot_s: float


@dataclass
class _Seen:
    sent_s: float
    tokens: Tokens
    first_s: float = 0.0
    last_s: float = 0.0


class VirtualEngine:
    """One run: `shape(i)` gives input and output tokens of request `i`; `due_s` is a timetable, else a closed loop."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        shape: Callable[[int], tuple[int, int]],
        requests: int,
        warmup: int = 0,
        concurrency: int = 1,
        due_s: Sequence[float] = (),
        chunked: bool = True,
    ) -> None:
        self.deployment, self.shape, self.warmup = deployment, shape, warmup
        limits = SchedulerLimits(
            max_num_seqs=deployment.max_num_seqs,
            max_num_batched_tokens=deployment.max_num_batched_tokens,
            block_size=16,
            chunked_prefill=chunked,
            prefill_first=not chunked,
        )
        self.scheduler = Scheduler(limits, BlockPool(100_000, caching=False))
        self.events: list[tuple[float, int, str, Any]] = []
        self.seen: list[_Seen] = []
        self.unseen: list[Tokens] = []
        self.left = requests + warmup
        self.busy, self.api_free_s, self.closed = False, 0.0, not due_s
        for moment in due_s or [0.0] * min(concurrency, self.left):
            self._at(moment, "send", None)

    def run(self) -> Judged:
        """Until every request has ended."""
        while self.events:
            now, _, kind, about = heapq.heappop(self.events)
            getattr(self, f"_{kind}")(now, about)
        measured = self.seen[self.warmup :]
        tokens = sum(one.tokens.output_tokens for one in measured)
        return Judged(
            output_tok_per_s=tokens / (max(one.last_s for one in measured) - measured[0].sent_s),
            ttft_s=fmean(one.first_s - one.sent_s for one in measured),
            tpot_s=fmean((one.last_s - one.first_s) / max(1, one.tokens.output_tokens - 1) for one in measured),
        )

    def _at(self, moment_s: float, kind: str, about: Any) -> None:
        heapq.heappush(self.events, (moment_s, len(self.seen) * 10**6 + len(self.events), kind, about))

    def _send(self, now: float, _: None) -> None:
        if not self.left:
            return
        self.left -= 1
        asked, given = self.shape(len(self.seen))
        tokens = Tokens(
            [0] * asked,
            max_tokens=given,
            stop_after=None,
            seed=len(self.seen),
            vocabulary=100,
            arrived_s=now,
            on_tokens=lambda *_: None,
        )
        self.seen.append(_Seen(now, tokens))
        self.api_free_s = max(self.api_free_s, now) + API_REQUEST_S + API_PROMPT_TOKEN_S * asked
        streams = sum(sequence.decoding for sequence in self.scheduler.running)
        self._at(self.api_free_s + API_STREAM_S * streams, "reach", tokens)

    def _reach(self, now: float, tokens: Tokens) -> None:
        if self.busy and self.deployment.schedules_ahead:
            self.unseen.append(tokens)
            return
        self.scheduler.add(tokens)
        if not self.busy:
            self.busy = True
            self._at(now, "begin", None)

    def _begin(self, now: float, _: None) -> None:
        step = self.scheduler.schedule()
        for tokens in self.unseen:
            self.scheduler.add(tokens)
        self.unseen.clear()
        step = step or self.scheduler.schedule()
        self.busy = step is not None
        if step is not None:
            self._at(now + self._duration_s(step), "end", step)

    def _duration_s(self, step: Step) -> float:
        return step_time_s(
            self.deployment,
            prefill_tokens=step.prefill_tokens,
            prefill_context_tokens=step.prefill_context_tokens,
            prefill_sequences=max(1, step.prefill_sequences),
            decode_sequences=step.decode_sequences,
            decode_context_tokens=step.decode_context_tokens,
        ).total_s

    def _end(self, now: float, step: Step) -> None:
        known = {id(one.tokens): one for one in self.seen}
        for tokens, count in step.scheduled:
            one = known[id(tokens)]
            was_decoding = tokens.decoding
            self.scheduler.computed(tokens, 1 if was_decoding else count)
            if not was_decoding and tokens.computed < len(tokens.tokens):
                continue
            tokens.decoding = True
            _, reason = tokens.generate(1)
            if not was_decoding:
                one.first_s = now
            if reason:
                one.last_s = now
                self.scheduler.finish(tokens)
                if self.closed:
                    self._at(now, "send", None)
        self._begin(now, None)
