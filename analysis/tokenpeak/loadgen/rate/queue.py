"""Queue model of an engine, and its own runs: a first-come queue before `slots`, and a slowdown by those in a slot.

A request in a slot moves on at 1 ÷ (1 + slowdown·max(0, n − free)) where n are in a slot: fixed slots have no slowdown,
processor sharing has one of 1 ÷ processors beyond as many requests, an LLM engine's step grows with its batch. What a
request needs of an idle engine is its work. Long and short runs of a model show where its percentiles reach limits.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenpeak.loadgen.arrivals import gaps
from tokenpeak.ranking.intervals import share

Numbers = NDArray[np.float64]
Limits = Sequence[tuple[str, str, float]]
"""Metric, percentile and limit of each."""

UNLIMITED = 1 << 20
WARMUP_SHARE = 0.1
LONG_FIXED, LONG, SHORT_FIXED, SHORT = 300_000, 150_000, 20_000, 6000
"""Requests of the model's own runs, and of quick ones; with fixed slots it is quicker to follow."""
RESAMPLES = 10
NEVER = 1e6
"""The share at which an answer begins that never does: beyond any limit."""
LEAST_SLOPE = 0.3
HIGHEST_SHARE = 0.995
"""Of capacity: a queue closer to it takes longer to settle than any run."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Requests of one probe in order of their due times; all ended well."""

    due_s: Numbers
    first_s: Numbers
    last_s: Numbers
    tokens: Numbers
    answer_shares: Numbers
    """When the answer began after a reasoning model's thoughts, as a share of the time from first to last token."""

    def metric(self, name: str) -> Numbers:
        """`ttft_s`, `ttfat_s`, `latency_s` or `tpot_s` (the latter of answers of two tokens and more)."""
        if name == "ttfat_s":
            return self.first_s + self.answer_shares * (self.last_s - self.first_s) - self.due_s
        if name == "ttft_s":
            return self.first_s - self.due_s
        if name == "latency_s":
            return self.last_s - self.due_s
        several = self.tokens > 1
        return (self.last_s - self.first_s)[several] / (self.tokens[several] - 1)

    def part(self, begin: int, number: int) -> "Timings":
        """So many requests from the one at `begin`."""
        return Timings(**{name: values[begin : begin + number] for name, values in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class QueueModel:
    """An engine as a queue. `works`, sorted, and `first_works` are what requests need of it, seconds on an idle one."""

    slots: int
    free: float
    slowdown: float
    works: Numbers
    first_works: Numbers
    tokens: Numbers
    answer_shares: Numbers

    @property
    def capacity_per_s(self) -> float:
        """Requests per second at which it ends them with every slot taken."""
        most = min(self.slots, UNLIMITED)
        return float(most * speed(np.array([most]), self.free, self.slowdown)[0] / self.works.mean())

    def resampled(self, indices: NDArray[np.int64]) -> "QueueModel":
        """The model with other works: those at `indices`, sorted again."""
        chosen = np.sort(indices)
        parts = {name: getattr(self, name)[chosen] for name in ("works", "first_works", "tokens", "answer_shares")}
        return replace(self, **parts)

    def serve(self, due_s: Numbers, uniforms: Numbers) -> Timings:
        """Requests due at these moments; `uniforms` in 0..1 choose their works, so that equal ones stay comparable."""
        chosen = (uniforms * self.works.size).astype(np.int64)
        works, first_works = self.works[chosen], self.first_works[chosen]
        if self.slowdown == 0:
            starts = _fixed(due_s, works, self.slots)
            first, last = starts + first_works, starts + works
        else:
            first, last = self._shared(due_s, works, first_works)
        return Timings(
            due_s=due_s,
            first_s=first,
            last_s=last,
            tokens=self.tokens[chosen],
            answer_shares=self.answer_shares[chosen],
        )

    def _shared(self, due_s: Numbers, works: Numbers, first_works: Numbers) -> tuple[Numbers, Numbers]:
        """First and last token. All in a slot move on alike, so one progress counts for all of them."""
        number, slots, free, slowdown = due_s.size, self.slots, self.free, self.slowdown
        due, wanted = due_s.tolist(), works.tolist()
        running: list[tuple[float, int]] = []
        starts, ends = [0.0] * number, [0.0] * number
        times, progresses = [0.0], [0.0]
        now = progress = 0.0
        arrived = begun = 0
        infinite = float("inf")
        pop, push = heapq.heappop, heapq.heappush
        while running or arrived < number:
            busy = len(running)
            pace = 1.0 + slowdown * (busy - free) if busy > free else 1.0
            finish = now + (running[0][0] - progress) * pace if running else infinite
            arrival = due[arrived] if arrived < number else infinite
            if finish <= arrival:
                progress, now = running[0][0], finish
                ends[pop(running)[1]] = now
            else:
                progress += (arrival - now) / pace
                now = arrival
                arrived += 1
            times.append(now)
            progresses.append(progress)
            if begun < arrived and len(running) < slots:
                starts[begun] = progress
                push(running, (progress + wanted[begun], begun))
                begun += 1
        return np.interp(np.array(starts) + first_works, progresses, times), np.array(ends)


def _fixed(due_s: Numbers, works: Numbers, slots: int) -> Numbers:
    """When each request gets its slot, for slots that do not slow each other down."""
    if slots >= due_s.size:
        return due_s
    free = [-np.inf] * slots
    starts = []
    put_back = heapq.heapreplace
    for moment, work in zip(due_s.tolist(), works.tolist(), strict=True):
        # A call of max() for each of millions of requests takes a quarter of a search.
        start = free[0] if free[0] > moment else moment  # noqa: FURB136
        put_back(free, start + work)
        starts.append(start)
    return np.array(starts)


def speed(busy: NDArray[np.int64], free: float, slowdown: float) -> Numbers:
    """How fast each request moves on while so many are in a slot; 1 on an idle engine."""
    pace: Numbers = 1 / (1 + slowdown * np.maximum(0.0, busy - free))
    return pace


def worst_ratio(
    limits: Limits,
    timings: Timings,
    skip: float = 0.0,
    failed: float = 0.0,
    gaps_of: Mapping[str, float] | None = None,
) -> float:
    """The worst percentile ÷ its limit, the first share `skip` left out; a share `failed` more took for ever."""
    worst = 0.0
    for metric, percentile, limit in limits:
        quantile = share(percentile) / max(1 - failed, 1e-9)
        if quantile >= 1:
            return np.inf
        if metric == "itl_s" and gaps_of is not None:
            worst = max(worst, gaps_of.get(percentile, 0.0) / limit)
            continue
        values = timings.metric("tpot_s" if metric == "itl_s" else metric)
        values = values[int(skip * values.size) :]
        if values.size:
            worst = max(worst, float(np.quantile(values, quantile)) / limit)
    return worst


class ModelRuns:
    """A model's own runs, long and short, over the same arrivals and works at each rate."""

    def __init__(self, model: QueueModel, limits: Limits, arrivals: str, burstiness: float, failed: float) -> None:
        self.limits, self.model, self.failed = limits, model, failed
        self.random = np.random.default_rng(17)
        long, self.short = (LONG, SHORT) if model.slowdown else (LONG_FIXED, SHORT_FIXED)
        self.lengths = (long // 4, long // 2, long)
        # Each run draws every part of the works equally often.
        self.uniforms = {
            n: (self.random.permutation(n) + self.random.random(n)) / n for n in (self.short, *self.lengths)
        }
        apart = gaps(long - 1, 1.0, arrivals, burstiness, self.random)
        self.unit = np.concatenate([[0.0], np.cumsum(apart)])
        self.highest = HIGHEST_SHARE * min(model.capacity_per_s, 1e9)

    def served(self, rate: float, number: int, model: QueueModel | None = None) -> Timings:
        """A run of so many requests at a rate; by another model where one is given."""
        due = self.unit[:number] * ((number - 1) / self.unit[number - 1]) / rate
        return (model or self.model).serve(due, self.uniforms[number])

    def log_ratio(self, timings: Timings, skip: float = WARMUP_SHARE) -> float:
        """The logarithm of the worst percentile ÷ its limit."""
        return float(np.log(max(worst_ratio(self.limits, timings, skip, self.failed), 1e-9)))

    def crossing(self) -> tuple[float, float] | None:
        """The rate at which a short run reaches a limit, and how ln ratio grows there by ln rate."""

        def beyond(log_rate: float) -> float:
            return self.log_ratio(self.served(float(np.exp(log_rate)), self.short))

        low, high = float(np.log(0.01 * self.highest)), float(np.log(self.highest))
        if beyond(low) > 0:
            return None
        from scipy.optimize import brentq  # half a second, which only a search spends

        rate = float(np.exp(brentq(beyond, low, high, xtol=2e-3))) if beyond(high) > 0 else self.highest
        above, below = min(1.05 * rate, self.highest), 0.95 * rate
        grown = self.log_ratio(self.served(above, self.short)) - self.log_ratio(self.served(below, self.short))
        return rate, float(np.clip(grown / np.log(above / below), LEAST_SLOPE, 100.0))

    def settled(self, rate: float, slope: float, shift: float) -> tuple[float, float]:
        """The rate by ever longer runs, and the standard error of ln ratio that the longest leaves."""
        for length in self.lengths:
            timings = self.served(rate, length)
            off = self.log_ratio(timings) + shift
            rate = min(rate * float(np.exp(np.clip(-off / slope, -0.1, 0.1))), self.highest)
        number = self.lengths[-1]
        quarters = [
            self.log_ratio(timings.part(begin, number // 4), 0.0)
            for begin in range(number // 20, number - number // 4, number // 5)
        ]
        return rate, float(np.std(quarters, ddof=1)) / 2

    def resampled(self, rate: float, slope: float) -> tuple[float, float]:
        """Standard errors by how few works were seen: of ln rate, and of capacity."""
        size = self.model.works.size
        here = self.log_ratio(self.served(rate, self.short))
        moved = []
        for _ in range(RESAMPLES):
            other = self.model.resampled(self.random.integers(0, size, size))
            moved.append((self.log_ratio(self.served(rate, self.short, other)) - here) / slope)
        works = float(self.model.works.std() / self.model.works.mean() / np.sqrt(size))
        return float(np.clip(np.std(moved, ddof=1), works, 0.5)), works
