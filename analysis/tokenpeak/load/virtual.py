"""An engine as a curve, in virtual time: what the rate search is held against. Pure and seeded.

The limited metric grows with load as `1 + w·ρ^b / (1 − ρ)` and without bound beyond capacity; a probe of n requests
sees it with the relative error of a p99 over an exponential tail, 2.2/√n, and one probe in 33 is spoiled by a hiccup of
50%. Capacity, w, b, the limit and the start (off by up to a factor of three) are drawn per case.
"""

from dataclasses import dataclass

import numpy as np

from tokenpeak.load.max_rate import Found, Probe, Search, Try

SCREENING_REQUESTS = 200
CONFIRMING_REQUESTS = 1000
HICCUP_SHARE = 0.03
HICCUP = 1.5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A search that has ended, and the rate that it should have found."""

    highest_per_s: float
    found: Found
    probes: tuple[Probe, ...]

    @property
    def error(self) -> float:
        """Found ÷ true − 1."""
        return (self.found.rate_per_s or np.inf) / self.highest_per_s - 1


def virtual_case(seed: int) -> Case:
    """One seeded case, searched to its end."""
    random = np.random.default_rng(seed)
    capacity = 10 ** random.uniform(0, 3)
    weight, bend, limit = 10 ** random.uniform(-2, -0.5), random.uniform(1, 3), 10 ** random.uniform(0.3, 1)

    def metric(load: float, requests: int) -> float:
        if load >= 0.999:
            return float(1 + weight / 0.001 + requests * (load - 0.999) * 0.2)
        return float(1 + weight * load**bend / (1 - load))

    low, high = 0.0, 1.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if metric(middle, CONFIRMING_REQUESTS) <= limit else (low, middle)
    search = Search(start_per_s=low * capacity * np.exp(random.uniform(-1.1, 1.1)))
    probes: list[Probe] = []
    while isinstance(step := search.step(probes), Try):
        requests = CONFIRMING_REQUESTS if step.confirming else SCREENING_REQUESTS
        error = 2.2 / np.sqrt(requests)
        hiccup = HICCUP if random.random() < HICCUP_SHARE else 1.0
        seen = metric(step.rate_per_s / capacity, requests) * np.exp(random.normal(0, error)) * hiccup
        probes.append(
            Probe(
                rate_per_s=step.rate_per_s,
                requests=requests,
                ratio=seen / limit,
                spread=error * np.exp(random.normal(0, 0.3)),
                achieved_per_s=min(step.rate_per_s, capacity),
            )
        )
    return Case(highest_per_s=low * capacity, found=step, probes=tuple(probes))
