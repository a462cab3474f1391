"""One probe of the search for the sustainable rate: what was asked, what it showed, and how near the limits it came."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokenpeak.loadgen.rate.queue import Timings

FEWEST_ENDED = 10
LUMPS = 3.0
"""Variance ÷ mean of the requests that end in an eighth of a latency, above which they end together; 1 is chance."""
PARTS = 8
"""Stretches of a probe whose throughput is compared."""
FEW_PARTS = (3.84, 1.78, 1.43, 1.30, 1.23, 1.18, 1.15)
"""By how much the error of 2, 3, … parts counts more: Student's t ÷ the normal quantile, two-sided, 90%."""


@dataclass(frozen=True, kw_only=True)
class ProbeAsked:
    """The next probe: an open loop at a rate, or a closed loop at a concurrency, which ends after `duration_s` too.

    A closed loop's slots begin one after the other within `ramp_s`, or at once.
    """

    rate_per_s: float | None = None
    concurrency: int | None = None
    requests: int
    duration_s: float | None = None
    ramp_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ProbeSeen:
    """A probe that has ended: its requests that ended well, warm-up included, and how many did not."""

    asked: ProbeAsked
    timings: Timings
    failed: int = 0
    duration_s: float
    gaps: Mapping[str, float] | None = None
    """Percentiles of the gaps between tokens, as `p99`, in seconds; None where they are not limited."""

    @property
    def failed_share(self) -> float:
        """Of all its requests."""
        return self.failed / max(self.failed + self.timings.due_s.size, 1)

    @property
    def burst(self) -> int:
        """First requests of a closed loop, which all came at once; at most half of them."""
        return min(self.asked.concurrency or 0, self.timings.due_s.size // 2)

    @property
    def lockstep(self) -> bool:
        """Whether a closed loop's requests end together, as equal ones do that came at once.

        Its queue is no other's: prompts are read all at once and answers end all at once.
        """
        ends = np.sort(self.timings.last_s)[self.burst :]
        if self.asked.concurrency is None or ends.size < 2 * FEWEST_ENDED:
            return False
        latency = float(np.median(self.timings.metric("latency_s")))
        counts = np.bincount(((ends - ends[0]) / max(latency / PARTS, 1e-9)).astype(np.int64))
        return float(np.var(counts)) > LUMPS * float(np.mean(counts))

    def completions_per_s(self) -> tuple[float, float]:
        """Requests ended per second while all slots were taken, with its standard error; no warm-up, no drain.

        The error is infinite where too few ended.
        """
        ends = np.sort(self.timings.last_s)
        turn = self.asked.concurrency or 1
        if self.asked.concurrency is None:
            begin = float(self.timings.due_s[int(0.3 * ends.size)])
        else:
            begin = max(float(ends[min(turn, ends.size // 4) - 1]), self.asked.ramp_s)
        within = ends[(ends > begin) & (ends <= float(self.timings.due_s[-1]))]
        # Equal requests of a closed loop run in lockstep: only whole turns of all of them are at one pace.
        turns = max(1, within.size // turn // PARTS)
        size = turns * turn if within.size >= 2 * turn else within.size // PARTS
        if within.size < FEWEST_ENDED or size == 0:
            return ends.size / max(float(ends[-1]), 1e-9), np.inf
        begin = float(ends[ends <= begin][-1]) if np.any(ends <= begin) else begin
        marks = np.array([begin, *within[size - 1 :: size]])
        steps = np.maximum(np.diff(marks), 1e-9)
        rate = size * steps.size / float(steps.sum())
        if steps.size < 2:
            return rate, np.inf
        spread = np.sqrt(np.average((size / steps / rate - 1) ** 2, weights=steps) / (steps.size - 1))
        return rate, rate * float(spread) * FEW_PARTS[min(steps.size, len(FEW_PARTS) + 1) - 2]
