"""Simulated servers of known capacity in virtual time, and their sustainable rates; shares no code with the package.

Fixed slots, processor sharing and a batch engine whose step time grows with its batch, under Poisson, gamma and
constant arrivals. `sustainable` is the truth: the highest rate whose percentiles hold in a long simulation.
"""

import heapq
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

TRUTH_REQUESTS = 80_000
TRUTH_WARMUP = 8_000
TRUTH_RUNS = 4


@dataclass(frozen=True)
class Works:
    """How long a request takes on an idle server, in seconds."""

    kind: str
    mean_s: float = 1.0
    shape: float = 1.0

    def draw(self, number: int, random: np.random.Generator) -> Numbers:
        """`number` independent ones."""
        if self.kind == "deterministic":
            return np.full(number, self.mean_s)
        if self.kind == "exponential":
            return random.exponential(self.mean_s, number)
        if self.kind == "lognormal":
            return self.mean_s * np.exp(random.normal(-(self.shape**2) / 2, self.shape, number))
        assert self.kind == "pareto"
        return self.mean_s * (self.shape - 1) / self.shape * (1 + random.pareto(self.shape, number))


@dataclass(frozen=True)
class Served:
    """What a client sees: when each request was due, its first and last token, and how many tokens."""

    due_s: Numbers
    first_s: Numbers
    last_s: Numbers
    tokens: Numbers

    def metric(self, name: str) -> Numbers:
        """One of ttft_s, latency_s and tpot_s for each request."""
        if name == "ttft_s":
            return self.first_s - self.due_s
        if name == "latency_s":
            return self.last_s - self.due_s
        return (self.last_s - self.first_s) / np.maximum(self.tokens - 1, 1)


@dataclass(frozen=True)
class Slots:
    """At most `slots` at a time, first come first served; `processors` are shared by those in a slot.

    Fixed slots have as many processors as slots; processor sharing has one processor and any number of slots.
    """

    slots: int
    works: Works
    processors: float = 1e9
    first_share: float = 0.1
    tokens: int = 16

    @property
    def capacity_per_s(self) -> float:
        """Requests per second at full load."""
        return min(self.slots, self.processors) / self.works.mean_s

    def serve(
        self, due_s: Numbers, random: np.random.Generator, concurrency: int | None = None, ramp_s: float = 0.0
    ) -> Served:
        """Requests due at given moments; or, with a concurrency, that many in flight at a time after the ramp."""
        works = self.works.draw(due_s.size, random)
        if concurrency is None and self.processors >= self.slots:
            return self._fixed(due_s, works)
        number, slots, processors = due_s.size, self.slots, self.processors
        due = due_s.tolist() if concurrency is None else ramp(concurrency, ramp_s)
        starts, ends = np.empty(number), np.empty(number)
        now, progress, arrived, begun = 0.0, 0.0, 0, 0
        running: list[tuple[float, int]] = []
        times, progresses = [0.0], [0.0]
        wanted = works.tolist()
        ended = 0
        while ended < number:
            busy = len(running)
            speed = 1.0 if busy <= processors else processors / busy
            finish = now + (running[0][0] - progress) / speed if running else np.inf
            arrival = due[arrived] if arrived < len(due) else np.inf
            moment = min(finish, arrival)
            progress += (moment - now) * speed
            now = moment
            times.append(now)
            progresses.append(progress)
            if finish <= arrival:
                _, index = heapq.heappop(running)
                ends[index] = now
                ended += 1
                if concurrency is not None and len(due) < number:
                    insort(due, now, lo=arrived)
            else:
                arrived += 1
            while begun < arrived and len(running) < slots:
                starts[begun] = progress
                heapq.heappush(running, (progress + wanted[begun], begun))
                begun += 1
        first = np.interp(starts + self.first_share * works, progresses, times)
        return Served(np.array(due), first, ends, np.full(number, float(self.tokens)))

    def _fixed(self, due_s: Numbers, works: Numbers) -> Served:
        free = [0.0] * self.slots
        starts = []
        for moment, work in zip(due_s.tolist(), works.tolist(), strict=True):
            start = max(free[0], moment)
            heapq.heapreplace(free, start + work)
            starts.append(start)
        begun = np.array(starts)
        return Served(due_s, begun + self.first_share * works, begun + works, np.full(due_s.size, float(self.tokens)))


@dataclass(frozen=True)
class BatchEngine:
    """All running requests get a token a step; a step takes longer with its batch and with the prompts it reads."""

    batch: int = 32
    tokens: Works = field(default_factory=lambda: Works("lognormal", 24.0, 0.5))
    step_s: float = 0.02
    per_request_s: float = 0.001
    per_prompt_s: float = 0.01
    prompts_a_step: int = 2

    def serve(
        self, due_s: Numbers, random: np.random.Generator, concurrency: int | None = None, ramp_s: float = 0.0
    ) -> Served:
        """Requests due at given moments; or, with a concurrency, that many in flight at a time after the ramp."""
        number = due_s.size
        lengths = np.maximum(1, np.round(self.tokens.draw(number, random))).astype(int).tolist()
        due = due_s.tolist() if concurrency is None else ramp(concurrency, ramp_s)
        first, last = np.empty(number), np.empty(number)
        running: list[tuple[int, int]] = []
        now, step, arrived, begun, ended = 0.0, 0, 0, 0, 0
        while ended < number:
            if not running and begun == arrived and now < due[arrived]:
                now = due[arrived]
            while arrived < len(due) and due[arrived] <= now:
                arrived += 1
            new = min(arrived - begun, self.batch - len(running), self.prompts_a_step)
            now += self.step_s + self.per_request_s * (len(running) + new) + self.per_prompt_s * new
            for index in range(begun, begun + new):
                first[index] = now
                heapq.heappush(running, (step + lengths[index] - 1, index))
            begun += new
            while running and running[0][0] <= step:
                _, index = heapq.heappop(running)
                last[index] = now
                ended += 1
                if concurrency is not None and len(due) < number:
                    insort(due, now, lo=arrived)
            step += 1
        return Served(np.array(due), first, last, np.array(lengths, dtype=np.float64))


Server = Slots | BatchEngine


def ramp(concurrency: int, ramp_s: float) -> list[float]:
    """When the slots of a closed loop begin: in sixteen steps, or at once."""
    begins: list[float] = (ramp_s / 16 * (np.arange(concurrency) * 16 // concurrency)).tolist()
    return begins


def arrivals(kind: str, number: int, random: np.random.Generator) -> Numbers:
    """Moments of arrival at a mean rate of one per second."""
    if kind == "constant":
        return np.arange(number, dtype=np.float64)
    gaps: Numbers = random.exponential(1.0, number) if kind == "poisson" else random.gamma(0.5, 2.0, number)
    moments: Numbers = np.cumsum(gaps) - gaps[0]
    return moments


def worst(runs: Sequence[Served], limits: tuple[tuple[str, int, float], ...], skip: int = 0) -> float:
    """The worst percentile ÷ its limit of all runs together, each without its first `skip` requests."""
    return max(
        float(np.percentile(np.concatenate([run.metric(name)[skip:] for run in runs]), percent)) / limit
        for name, percent, limit in limits
    )


@cache
def capacity(server: Server) -> float:
    """Requests per second at full load: with far more in flight than are served at a time."""
    if isinstance(server, Slots):
        return server.capacity_per_s
    number = 30_000
    served = server.serve(np.zeros(number), np.random.default_rng(11), 4 * server.batch)
    ends = np.sort(served.last_s)
    return float((number - 4000) / (ends[-2000] - ends[2000]))


@cache
def sustainable(server: Server, kind: str, limits: tuple[tuple[str, int, float], ...]) -> float:
    """The highest rate at which every percentile is within its limit in steady state; 0 where none is."""
    fixed = isinstance(server, Slots) and server.processors >= server.slots
    # One run of a queue near capacity says too little: its busy periods are long.
    random = np.random.default_rng(12)
    moments = [arrivals(kind, TRUTH_REQUESTS * (3 if fixed else 1), random) for _ in range(TRUTH_RUNS)]
    top = capacity(server)
    low, high = 0.02, 1.0
    for _ in range(11):
        middle = (low + high) / 2
        # The same arrivals and the same works at every rate.
        runs = [server.serve(at / (middle * top), np.random.default_rng([13, run])) for run, at in enumerate(moments)]
        low, high = (middle, high) if worst(runs, limits, TRUTH_WARMUP) <= 1 else (low, middle)
    return (low + high) / 2 * top
