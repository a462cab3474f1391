"""Queue model of an engine: a first-come queue before `slots`, and a slowdown by those in a slot.

A request in a slot moves on at 1 ÷ (1 + slowdown·max(0, n − free)) where n are in a slot: fixed slots have no slowdown,
processor sharing has one of 1 ÷ processors beyond as many requests, an LLM engine's step grows with its batch. What a
request needs of an idle engine is its work.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

UNLIMITED = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Requests of one probe in order of their due times; all ended well."""

    due_s: Numbers
    first_s: Numbers
    last_s: Numbers
    tokens: Numbers

    def metric(self, name: str) -> Numbers:
        """`ttft_s`, `latency_s` or `tpot_s` (the latter of answers of two tokens and more)."""
        if name == "ttft_s":
            return self.first_s - self.due_s
        if name == "latency_s":
            return self.last_s - self.due_s
        several = self.tokens > 1
        return (self.last_s - self.first_s)[several] / (self.tokens[several] - 1)

    def part(self, begin: int, number: int) -> "Timings":
        """So many requests from the one at `begin`."""
        stretch = slice(begin, begin + number)
        return Timings(
            due_s=self.due_s[stretch],
            first_s=self.first_s[stretch],
            last_s=self.last_s[stretch],
            tokens=self.tokens[stretch],
        )


@dataclass(frozen=True, kw_only=True)
class QueueModel:
    """An engine as a queue. `works`, sorted, and `first_works` are what requests need of it, seconds on an idle one."""

    slots: int
    free: float
    slowdown: float
    works: Numbers
    first_works: Numbers
    tokens: Numbers

    @property
    def capacity_per_s(self) -> float:
        """Requests per second at which it ends them with every slot taken."""
        most = min(self.slots, UNLIMITED)
        return float(most * speed(np.array([most]), self.free, self.slowdown)[0] / self.works.mean())

    def resampled(self, indices: NDArray[np.int64]) -> "QueueModel":
        """The model with other works: those at `indices`, sorted again."""
        chosen = np.sort(indices)
        return QueueModel(
            slots=self.slots,
            free=self.free,
            slowdown=self.slowdown,
            works=self.works[chosen],
            first_works=self.first_works[chosen],
            tokens=self.tokens[chosen],
        )

    def serve(self, due_s: Numbers, uniforms: Numbers) -> Timings:
        """Requests due at these moments; `uniforms` in 0..1 choose their works, so that equal ones stay comparable."""
        chosen = (uniforms * self.works.size).astype(np.int64)
        works, first_works = self.works[chosen], self.first_works[chosen]
        if self.slowdown == 0:
            starts = _fixed(due_s, works, self.slots)
            first, last = starts + first_works, starts + works
        else:
            first, last = self._shared(due_s, works, first_works)
        return Timings(due_s=due_s, first_s=first, last_s=last, tokens=self.tokens[chosen])

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
    replace = heapq.heapreplace
    for moment, work in zip(due_s.tolist(), works.tolist(), strict=True):
        # A call of max() for each of millions of requests takes a quarter of a search.
        start = free[0] if free[0] > moment else moment  # noqa: FURB136
        replace(free, start + work)
        starts.append(start)
    return np.array(starts)


def speed(busy: NDArray[np.int64], free: float, slowdown: float) -> Numbers:
    """How fast each request moves on while so many are in a slot; 1 on an idle engine."""
    pace: Numbers = 1 / (1 + slowdown * np.maximum(0.0, busy - free))
    return pace
