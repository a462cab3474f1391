"""Estimate of an engine's queue model from the requests of probes.

What a request needs of an idle engine (its work) follows from when it was due and when it ended. Under the right model
the works do not depend on how many others were there; the model is the one for which they depend on it least.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.loadgen.rate.probe import ProbeSeen
from tokenpeak.loadgen.rate.queue import UNLIMITED, Numbers, QueueModel, Timings, speed

SLOTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, UNLIMITED)
FREE = (1, 2, 4, 8, 16, 32)
SLOWDOWNS = (0.003, 0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
ESTIMATED_FROM = 5000
FEWEST = 8
"""Requests of a probe that is estimated from."""
A_PARAMETER = 6.0
"""Explained by a parameter more at least, in units of −2 ln likelihood."""
BINS = 6
NOISE = 0.02
"""Share of a work by which it may differ though the model is right: the client's and the kernel's time."""
MODEL_NOISE = 0.005
"""Of roots of works, what a group's mean may differ though the model is as good as one can be: 1% of a work."""
SHORTEST = 0.1
"""Share of the mean work that no answer's length is expected to fall below."""
IMPOSSIBLE = 1000.0
"""Weight of the share of requests that a model cannot explain."""


@dataclass(frozen=True)
class Kind:
    """The parameters of a model."""

    slots: int
    free: float
    slowdown: float

    @property
    def parameters(self) -> int:
        """How many are free: sharing of `free` processors is one, as is a slowdown by each request after the first."""
        shared = 0 if self.slowdown == 0 else 1 if self.free == 1 or self.slowdown == 1 / self.free else 2
        return shared + (self.slots < UNLIMITED)


def _observed_starts(timings: Timings, slots: int) -> Numbers:
    """When each request got its slot, by when those before it ended."""
    if slots >= timings.due_s.size:
        return timings.due_s
    taken: list[float] = []
    starts = []
    for moment, end in zip(timings.due_s.tolist(), timings.last_s.tolist(), strict=True):
        if len(taken) < slots:
            start = moment
            heapq.heappush(taken, end)
        else:
            start = max(taken[0], moment)
            heapq.heapreplace(taken, end)
        starts.append(start)
    return np.array(starts)


class _Occupancy:
    """One probe's requests with what does not depend on the slowdown, for one number of slots."""

    def __init__(self, timings: Timings, slots: int) -> None:
        self.timings = timings
        starts = _observed_starts(timings, slots)
        number = starts.size
        moments = np.concatenate([starts, timings.last_s])
        ordered = np.argsort(moments, kind="stable")
        self.times = moments[ordered]
        self.busy = np.cumsum(np.where(ordered < number, 1, -1))
        self.steps = np.diff(self.times)
        place = np.empty(2 * number, dtype=np.int64)
        place[ordered] = np.arange(2 * number)
        self.began, self.ended = place[:number], place[number:]

    def works(self, free: float, slowdown: float) -> tuple[Numbers, Numbers]:
        """Each request's work, and the part of it until its first token; negative where the model cannot be."""
        progress = np.concatenate([[0.0], np.cumsum(self.steps * speed(self.busy[:-1], free, slowdown))])
        begun = progress[self.began]
        first = np.interp(self.timings.first_s, self.times, progress)
        return progress[self.ended] - begun, first - begun


def _others(timings: Timings) -> NDArray[np.int64]:
    """How many requests were there when each one came."""
    there: NDArray[np.int64] = np.arange(timings.due_s.size) - np.searchsorted(np.sort(timings.last_s), timings.due_s)
    return there


class _Groups:
    """Requests of all probes in one row, grouped by probe and by how many were there when they came.

    Those of the burst with which a closed loop begins are in no group.
    """

    def __init__(self, probes: Sequence[Timings], bursts: Sequence[int]) -> None:
        members, begins, offset, size = [], [], 0, 0
        for timings, burst in zip(probes, bursts, strict=True):
            there = _others(timings)
            ordered = burst + np.argsort(there[burst:], kind="stable")
            if not ordered.size:
                # All that is shown of a wide closed loop is its burst.
                offset += there.size
                continue
            edges = [0]
            for part in np.array_split(np.arange(ordered.size), BINS)[:-1]:
                # Requests that met as many others stay together.
                edge = int(np.searchsorted(there[ordered], there[ordered][part[-1]], side="right"))
                if edge > edges[-1] + 10 and ordered.size - edge > 10:
                    edges.append(edge)
            begins += [size + edge for edge in edges]
            members.append(ordered + offset)
            offset += there.size
            size += ordered.size
        self.members = np.concatenate(members)
        self.begins = np.array(begins)
        self.sizes = np.diff([*begins, size])

    def dependence(self, values: Numbers) -> float:
        """How far the groups' means differ: chi-squared with a degree of freedom for each group but one."""
        row = values[self.members]
        means = np.add.reduceat(row, self.begins) / self.sizes
        within = float(np.mean((row - np.repeat(means, self.sizes)) ** 2))
        weights = 1 / (within / self.sizes + MODEL_NOISE**2)
        return float(np.sum(weights * (means - np.average(means, weights=weights)) ** 2))


def _expected(works: Numbers, tokens: Numbers) -> Numbers:
    """Works of answers as long, by a line through them."""
    mean, length = float(works.mean()), tokens - tokens.mean()
    spread = float(np.mean(length**2))
    slope = float(np.mean(works * length)) / spread if spread > 0 else 0.0
    expected: Numbers = np.maximum(mean + slope * length, SHORTEST * mean)
    return expected


def _deviance(parts: Sequence[_Occupancy], kind: Kind, groups: _Groups) -> float:
    """How little the model explains, in units of −2 ln likelihood; parameters count against it."""
    pairs = [part.works(kind.free, kind.slowdown) for part in parts]
    works = np.concatenate([pair[0] for pair in pairs])
    first = np.concatenate([pair[1] for pair in pairs])
    mean = float(works.mean())
    if mean <= 0:
        return np.inf
    # Too few slots show works of nothing or less, and first tokens before a request had its slot.
    impossible = float(np.mean(works < 0) + np.mean(first < -NOISE * mean))
    # Long answers are long in any queue. Roots are nearly normal where works are exponential.
    expected = _expected(works, np.concatenate([part.timings.tokens for part in parts]))
    roots = np.sqrt(np.maximum(works, 0.0) / expected)
    # A first token that is late by a share of the whole work counts like a work that is longer by it.
    firsts = np.sqrt(1 + np.maximum(first, 0.0) / mean)
    # First tokens of slow requests are slow: both together say less than twice as much.
    together = (groups.dependence(roots) + groups.dependence(firsts)) / 2
    return together + IMPOSSIBLE * impossible + A_PARAMETER * kind.parameters


def estimate_models(seen: Sequence[ProbeSeen], models: int = 8) -> list[QueueModel]:
    """The model under which the works of these requests depend least on how many others were there.

    After it so many `models` drawn by their probability, of those of its kind.
    """
    seen = [probe for probe in seen if probe.timings.due_s.size >= FEWEST]
    probes, bursts = [probe.timings for probe in seen], [probe.burst for probe in seen]
    shown = [probe.part(0, max(300, ESTIMATED_FROM // len(probes))) for probe in probes]
    groups = _Groups(shown, bursts)
    most = max(int(_others(probe).max()) + 1 for probe in shown)
    deviances: dict[Kind, float] = {}

    def look(slots: int, shapes: Sequence[tuple[float, float]]) -> None:
        parts = [_Occupancy(probe, slots) for probe in shown]
        for free, slowdown in shapes:
            kind = Kind(slots, free, slowdown)
            if kind not in deviances:
                deviances[kind] = _deviance(parts, kind, groups)

    for slots in (*(slots for slots in SLOTS if slots < most), UNLIMITED):
        look(
            slots,
            [
                (1.0, 0.0),
                *((1.0, slowdown) for slowdown in SLOWDOWNS),
                *((float(free), 1 / free) for free in FREE[1:] if free < slots),
            ],
        )
    for spread in (1.5, 1.25, 1.1):
        for best in sorted(deviances, key=deviances.__getitem__)[:2]:
            near = [best.slots + step for step in (-2, -1, 0, 1, 2)] if best.slots < UNLIMITED else [UNLIMITED]
            for slots in near:
                if slots >= 1:
                    look(slots, _near(best.free, best.slowdown, spread))
    best = min(deviances, key=deviances.__getitem__)
    kinds = _around(best)
    for slots in {kind.slots for kind in kinds}:
        look(slots, [(kind.free, kind.slowdown) for kind in kinds if kind.slots == slots])
    weights = np.exp([-(deviances[kind] - deviances[best]) / 2 for kind in kinds])
    # So many of them, evenly spaced by probability, stand for all.
    marks = (np.arange(models) + 0.5) / models * weights.sum()
    chosen = np.searchsorted(np.cumsum(weights), marks)
    return [_model(probes, bursts, kind) for kind in (best, *(kinds[index] for index in chosen))]


def _around(best: Kind) -> list[Kind]:
    """Models about as likely as the best: evenly spaced ones of its kind."""
    if best.slowdown == 0:
        near = range(best.slots - 2, best.slots + 3) if best.slots < UNLIMITED else (UNLIMITED,)
        return [Kind(slots, 1.0, 0.0) for slots in near if slots >= 1]
    steps = np.exp(np.linspace(-0.4, 0.4, 17))
    if best.parameters - (best.slots < UNLIMITED) > 1:
        return [
            Kind(best.slots, max(1.0, best.free * side), best.slowdown * slope)
            for side in (0.8, 0.9, 1.0, 1.1, 1.25)
            for slope in steps
        ]
    if best.free == 1:
        return [Kind(best.slots, 1.0, best.slowdown * slope) for slope in steps]
    return [Kind(best.slots, best.free * side, 1 / (best.free * side)) for side in steps]


def _model(probes: Sequence[Timings], bursts: Sequence[int], kind: Kind) -> QueueModel:
    """The model with the works that it finds in the probes after their first bursts."""
    pairs = [_Occupancy(probe, kind.slots).works(kind.free, kind.slowdown) for probe in probes]
    works = np.concatenate([pair[0][burst:] for pair, burst in zip(pairs, bursts, strict=True)])
    first = np.concatenate([pair[1][burst:] for pair, burst in zip(pairs, bursts, strict=True)])
    tokens, shares = (
        np.concatenate([getattr(probe, name)[burst:] for probe, burst in zip(probes, bursts, strict=True)])
        for name in ("tokens", "answer_shares")
    )
    ordered = np.argsort(works, kind="stable")
    works = np.maximum(works[ordered], 0.0)
    return QueueModel(
        slots=kind.slots,
        free=kind.free,
        slowdown=kind.slowdown,
        works=works,
        first_works=np.clip(first[ordered], 0.0, works),
        tokens=tokens[ordered],
        answer_shares=shares[ordered],
    )


def _near(free: float, slowdown: float, spread: float) -> list[tuple[float, float]]:
    """Neighbours of a shape; one of a single parameter has those of its family besides."""
    if slowdown == 0:
        return [(free, 0.0)]
    family = [(free * side, 1 / (free * side)) for side in (1 / spread, spread) if slowdown == 1 / free]
    return family + [
        (max(1.0, free * side), slowdown * slope)
        for side in (1 / spread, 1.0, spread)
        for slope in (1 / spread, 1 / np.sqrt(spread), 1.0, np.sqrt(spread), spread)
    ]
