"""Search for the highest rate by doubling and bisection over probes of a fixed length, as other load generators do it.

A probe holds when each of its percentiles is within its limit. The answer is the highest rate whose probe held.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenpeak.loadgen.rate_probe import ProbeAsked, ProbeSeen

REQUESTS = 500
WARMUP = 50
FIRST_PER_S = 3.0
TOLERANCE = 0.05
"""Width of the bracket, as a share of its lower end, at which the bisection ends."""
MOST_PROBES = 20


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """How a bisection ended. `rate_per_s` is None where no probe held."""

    rate_per_s: float | None
    probes: int
    duration_s: float


def held(seen: ProbeSeen, limits: Sequence[tuple[str, int, float]]) -> bool:
    """Whether each percentile of the probe is within its limit, the first requests left out."""
    timings = seen.timings
    values = {
        "ttft_s": timings.first_s - timings.due_s,
        "latency_s": timings.last_s - timings.due_s,
        "tpot_s": (timings.last_s - timings.first_s) / np.maximum(timings.tokens - 1, 1),
    }
    return all(float(np.percentile(values[name][WARMUP:], percent)) <= limit for name, percent, limit in limits)


def bisect(offer: Callable[[ProbeAsked], ProbeSeen], limits: Sequence[tuple[str, int, float]]) -> Bisected:
    """Double the rate until a probe does not hold, then halve the bracket."""
    low, high = 0.0, float("inf")
    rate, probes, duration = FIRST_PER_S, 0, 0.0
    while probes < MOST_PROBES and high - low > TOLERANCE * low:
        seen = offer(ProbeAsked(rate_per_s=rate, requests=REQUESTS))
        probes += 1
        duration += seen.duration_s
        low, high = (rate, high) if held(seen, limits) else (low, rate)
        rate = 2 * low if high == float("inf") else (low + high) / 2
    return Bisected(rate_per_s=low or None, probes=probes, duration_s=duration)
