"""Run played in virtual time: which request is computed in which step of the engine, and when its tokens are there.

Requests come as the load generator sends them, pass the API server, are prefilled in the order in which they came, in
chunks or whole, and then gain a token in each step; the durations are those of the performance model. So the burst at
the start, prompts that wait for one another, requests of equal length that end together, and the end of the run, when
fewer and fewer are in flight, are in the prediction as they are in a measurement. Steps between two events are alike
and are passed over at once.
"""

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean

from tokenpeak.predict.demand import Demand, arrivals, lengths
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.physics import request_s, step_time_s, turns_s

OPEN_AT_MOST = 500
"""Requests of an open loop that are played; in steady state more would show the same."""

CLOSED_AT_LEAST, WAVES = 300, 4
"""Requests of a closed loop that are played at least, as times those in flight; those after them count as alike."""

QUANTILES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One data-parallel rank of an engine, as it serves requests."""

    deployment: Deployment
    seats: int
    """Most sequences in flight, by flag or by KV cache."""
    chunked_prefill: bool = True
    draft_tokens: int = 0
    tokens_per_step: float = 1.0
    """Tokens that a decoding sequence gains: one, and the drafts accepted in a row."""
    drafting_s: float = 0.0
    """Time of drafting in a step."""
    cached: float = 0.0
    """Share of a prompt that the prefix cache holds."""
    stalls: float = 1.0
    """Time that prefills of any rank add to a step, for each second that those of this one add."""
    prefill_share: float = 1.0
    """Share of the ranks that prefill when this one does."""


@dataclass(frozen=True, kw_only=True)
class PlayedRun:
    """The measured requests of a run: mean and QUANTILES of each metric, in seconds."""

    ttft_s: Mapping[str, float]
    tpot_s: Mapping[str, float]
    """Empty where answers have one token."""
    latency_s: Mapping[str, float]
    output_tok_per_s: float
    """Their tokens per second, from when the first was sent to when the last had ended."""


@dataclass(slots=True, kw_only=True)
class _Request:
    number: int
    sent_s: float
    prompt: int
    """Tokens to be computed."""
    cached: int
    output: int
    computed: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


@lru_cache(maxsize=4096)
def play(rank: Rank, demand: Demand) -> PlayedRun:
    """The run of `demand` on one rank."""
    return _Player(rank, demand).run()


def _summary(values: Sequence[float]) -> Mapping[str, float]:
    if not values:
        return {}
    ascending = sorted(values)
    last = len(ascending) - 1
    return {"mean": fmean(ascending)} | {name: ascending[round(share * last)] for name, share in QUANTILES.items()}


@dataclass
class _Player:
    """A run under way. `progress` is what a sequence that decodes from the start would have gained, in tokens."""

    rank: Rank
    demand: Demand
    now_s: float = 0.0
    begun_s: float = 0.0
    """When the step that just ended had begun; the next one was scheduled then if the engine schedules ahead."""
    busy: bool = False
    progress: float = 0.0
    context: float = 0.0
    """Tokens of all decoding sequences."""
    decoding: list[tuple[float, int, _Request]] = field(default_factory=list)
    """A heap of (progress at which it ends, number, request)."""
    prefilling: deque[_Request] = field(default_factory=deque)
    waiting: deque[_Request] = field(default_factory=deque)
    coming: deque[tuple[float, _Request]] = field(default_factory=deque)
    """Requests in the API server, with the moment at which they reach the engine core."""
    api_free_s: float = 0.0
    in_flight: int = 0
    timed_out: bool = False
    """Nothing more was sent because the time of the run was over."""
    requests: list[_Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        demand = self.demand
        self.closed = demand.rate_per_s is None
        self.cap = (demand.concurrency or 1) if self.closed else (demand.concurrency or math.inf)
        self.warmup = demand.warmup_requests
        wanted = math.inf if demand.requests is None else demand.requests
        if self.closed:
            most = max(CLOSED_AT_LEAST, WAVES * self.cap)
        else:
            self.warmup, most = min(self.warmup, OPEN_AT_MOST // 4), OPEN_AT_MOST
            if demand.requests is None:
                wanted = max(1.0, (demand.rate_per_s or 0.0) * (demand.duration_s or 60.0))
        self.left = self.warmup + int(min(wanted, most))
        self.due = deque(arrivals(demand, self.left))
        self.shapes = lengths(demand)

    def run(self) -> PlayedRun:
        """Play until every request has ended."""
        self._send()
        while self.left or self.in_flight:
            self._arrive()
            if self.prefilling or self.waiting or self.decoding:
                self._step()
            else:
                self.busy = False
                self.now_s = max(self.now_s, self._next_arrival_s())
        return self._result()

    # Load generator and API server

    def _send(self) -> None:
        """Send what is due, as far as the cap allows."""
        while self.left and self.in_flight < self.cap:
            if self.closed:
                sent_s = self.now_s
            elif self.due and self.due[0] <= self.now_s:
                sent_s = self.due.popleft()
            else:
                return
            if self._is_over(sent_s):
                self.left, self.timed_out = 0, True
                return
            prompt, output = next(self.shapes)
            cached = round(prompt * self.rank.cached)
            request = _Request(
                number=len(self.requests),
                sent_s=sent_s,
                prompt=max(1, prompt - cached),
                cached=cached,
                output=output,
            )
            self.requests.append(request)
            self.left -= 1
            self.in_flight += 1
            self.api_free_s = max(sent_s, self.api_free_s) + request_s(prompt)
            self.coming.append((self.api_free_s + turns_s(len(self.decoding)), request))

    def _is_over(self, sent_s: float) -> bool:
        """Whether a closed loop bound by time sends no more; its time counts from the first measured request."""
        if not self.closed or self.demand.duration_s is None or len(self.requests) <= self.warmup:
            return False
        return sent_s >= self.requests[self.warmup].sent_s + self.demand.duration_s

    def _arrive(self) -> None:
        """Let the engine see what had reached it when this step was scheduled."""
        self._send()
        seen_s = self.begun_s if self.busy and self.rank.deployment.schedules_ahead else self.now_s
        while self.coming and self.coming[0][0] <= seen_s + 1e-12:
            self.waiting.append(self.coming.popleft()[1])

    def _next_arrival_s(self) -> float:
        moments = [self.coming[0][0]] if self.coming else []
        if self.due and self.in_flight < self.cap:
            moments.append(self.due[0])
        return min(moments, default=math.inf)

    # Engine

    def _step(self) -> None:
        rank = self.rank
        alone = not rank.chunked_prefill and not rank.deployment.v1
        decoding = 0 if alone else len(self.decoding)
        tokens, prompts, before = self._schedule_prompts(
            rank.deployment.max_num_batched_tokens - decoding * (1 + rank.draft_tokens)
        )
        if not tokens:
            self._decode()
            return
        seconds = self._time_s(tokens, prompts, before, decoding, self.context)
        if rank.stalls != 1.0:
            without_s = self._time_s(0, 0, 0, decoding, self.context) if decoding else 0.0
            seconds = without_s + (seconds - without_s) * rank.stalls
        self._pass(seconds, seconds)
        if decoding:
            self._gain(1)
        while self.prefilling and self.prefilling[0].computed >= self.prefilling[0].prompt:
            request = self.prefilling.popleft()
            request.first_s = self.now_s
            self.context += request.cached + request.prompt
            heapq.heappush(self.decoding, (self.progress + request.output - 1, request.number, request))
        self._end()

    def _schedule_prompts(self, budget: float) -> tuple[int, int, int]:
        """(tokens, prompts, tokens of theirs in the KV cache already) that this step prefills."""
        tokens = prompts = before = 0
        queued = deque(self.prefilling)
        while budget > 0:
            if not queued:
                full = len(self.decoding) + len(self.prefilling) >= self.rank.seats
                if full or not self.waiting:
                    break
                if not self.rank.chunked_prefill and self.waiting[0].prompt > budget and (tokens or self.decoding):
                    break
                self.prefilling.append(self.waiting.popleft())
                queued.append(self.prefilling[-1])
            request = queued.popleft()
            rest = request.prompt - request.computed
            part = min(int(budget), rest) if self.rank.chunked_prefill else rest
            before += request.cached + request.computed
            request.computed += part
            budget -= part
            tokens += part
            prompts += 1
        return tokens, prompts, before

    def _decode(self) -> None:
        """As many steps as pass until a sequence ends or a new one is seen."""
        gain, decoding = self.rank.tokens_per_step, len(self.decoding)
        steps = max(1, math.ceil((self.decoding[0][0] - self.progress) / gain - 1e-9))
        each_s = self._time_s(0, 0, 0, decoding, self.context)
        if decoding < self.rank.seats and (next_s := self._next_arrival_s()) < math.inf:
            ahead = 1 if self.rank.deployment.schedules_ahead else 0
            steps = min(steps, max(1, math.ceil((next_s - self.now_s) / each_s) + ahead))
        if steps > 1:
            each_s = self._time_s(0, 0, 0, decoding, self.context + decoding * gain * (steps - 1) / 2)
        self._pass(steps * each_s, each_s)
        self._gain(steps)
        self._end()

    def _pass(self, seconds: float, last_step_s: float) -> None:
        self.now_s += seconds
        self.begun_s = self.now_s - last_step_s
        self.busy = True

    def _gain(self, steps: int) -> None:
        self.progress += steps * self.rank.tokens_per_step
        self.context += steps * self.rank.tokens_per_step * len(self.decoding)

    def _end(self) -> None:
        """Answer the requests whose last token is there, and let others be sent in their place."""
        ended = 0
        while self.decoding and self.decoding[0][0] <= self.progress + 1e-9:
            end, _, request = heapq.heappop(self.decoding)
            request.last_s = self.now_s
            gained = self.progress - end + request.output - 1
            self.context = max(0.0, self.context - request.cached - request.prompt - gained)
            ended += 1
        self.in_flight -= ended
        if ended:
            self._send()

    def _time_s(self, tokens: int, prompts: int, before: int, decoding: int, context: float) -> float:
        """A step that prefills and decodes; of the sequences that decode, each pipeline stage has its share."""
        deployment, drafts = self.rank.deployment, self.rank.draft_tokens
        share = max(1, round(decoding / deployment.pipeline_parallel)) if decoding else 0
        step = step_time_s(
            deployment,
            prefill_tokens=tokens + share * drafts,
            prefill_context_tokens=before,
            decode_sequences=share,
            decode_context_tokens=round(context * share / decoding) if decoding else 0,
            prefill_sequences=max(1, prompts + (share if drafts else 0)),
            prefill_share=self.rank.prefill_share,
        )
        return step.total_s + (self.rank.drafting_s if decoding else 0.0)

    # What a run's summary says

    def _result(self) -> PlayedRun:
        measured = self.requests[self.warmup :]
        tokens = float(sum(request.output for request in measured))
        duration_s = max(request.last_s for request in measured) - measured[0].sent_s
        if (more := self._not_played(measured)) > 0:
            duration_s += more * self._apart_s(measured)
            tokens += more * self.demand.output_tokens
        return PlayedRun(
            ttft_s=_summary([request.first_s - request.sent_s for request in measured]),
            tpot_s=_summary([_tpot_s(request) for request in measured if request.output > 1]),
            latency_s=_summary([request.last_s - request.sent_s for request in measured]),
            output_tok_per_s=tokens / duration_s,
        )

    def _not_played(self, measured: Sequence[_Request]) -> float:
        demand = self.demand
        if demand.requests is not None:
            return demand.requests - len(measured)
        if demand.duration_s is None or self.timed_out or len(measured) < 2:
            return 0.0
        left_s = demand.duration_s - (measured[-1].sent_s - measured[0].sent_s)
        return max(0.0, left_s / self._apart_s(measured) - 1)

    def _apart_s(self, measured: Sequence[_Request]) -> float:
        """Between two requests sent, in the later half of what was played and in whole waves."""
        if self.demand.rate_per_s is not None:
            return 1 / self.demand.rate_per_s
        if len(measured) < 2:
            # A slow machine answers one request in all the time that is played.
            return (measured[0].last_s - measured[0].sent_s) / self.cap
        wave = int(self.cap)
        window = min(len(measured) - 1, wave * max(1, len(measured) // (2 * wave)))
        return (measured[-1].sent_s - measured[-1 - window].sent_s) / window


def _tpot_s(request: _Request) -> float:
    return (request.last_s - request.first_s) / (request.output - 1)
