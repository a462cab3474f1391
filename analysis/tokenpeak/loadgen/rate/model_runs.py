"""Long and short runs of a queue model: where its percentiles reach their limits."""

import numpy as np

from tokenpeak.loadgen.arrivals import gaps
from tokenpeak.loadgen.rate.probe import WARMUP_SHARE, Limits, worst_ratio
from tokenpeak.loadgen.rate.queue import QueueModel, Timings

LONG_FIXED, LONG, SHORT_FIXED, SHORT = 300_000, 150_000, 20_000, 6000
"""Requests of the model's own runs, and of quick ones; with fixed slots it is quicker to follow."""
RESAMPLES = 10
LEAST_SLOPE = 0.3
HIGHEST_SHARE = 0.995
"""Of capacity: a queue closer to it takes longer to settle than any run."""


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
