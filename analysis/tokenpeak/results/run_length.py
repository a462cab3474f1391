"""Length that a run needs to say whether the engine holds a fixed rate. Pure.

Three things need requests: the steady-state test, which separates an overload of RUN_MARGIN from a steady state; the
SLO's percentiles, each of which rests on as many as would assure it were all within the limit; and the time that the
engine takes to fill, for which its first requests say nothing.
"""

from dataclasses import dataclass

from tokenpeak.ranking.slo_confidence import requests_needed as requests_to_assure
from tokenpeak.ranking.slo_confidence import share
from tokenpeak.results.steady_state import RUN_MARGIN, requests_needed
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import OpenLoad

SERVICE_VARIANCE = 1.0
"""Squared variation of service times: that of an exponential one, more than engines show whose answers have one
length."""


@dataclass(frozen=True, kw_only=True)
class ShortRun:
    """A level whose run would be too short, and the requests that would do."""

    workload: str
    level: OpenLoad
    requests: int
    needed: int

    @property
    def words(self) -> str:
        """The hint, with what to write."""
        seconds = self.needed / self.level.rate_per_s
        return (
            f"workload {self.workload!r}, level {self.level.label}: {self.requests} requests are too few to show an "
            f"overload of {RUN_MARGIN:.0%}, or to assure the SLO. "
            f"Set requests: {self.needed} ({seconds:.0f} s), or use max_rate_under"
        )


def open_loop_requests(level: OpenLoad, slo: Slo) -> int:
    """The measured and warm-up requests that a run at this rate needs."""
    spread = {"constant": 0.0, "poisson": 1.0, "gamma": 1 / level.burstiness}[level.arrivals]
    state = requests_needed(RUN_MARGIN, spread + SERVICE_VARIANCE)
    percentiles = [requests_to_assure(share(percentile)) for _, percentile, _ in slo.limits()]
    return max([state + filling_requests(level, slo), *percentiles])


def filling_requests(level: OpenLoad, slo: Slo) -> int:
    """Requests that come while the first one is served, where the SLO limits how long that takes."""
    limits = [limit for metric, _, limit in slo.limits() if metric in ("ttft_s", "latency_s")]
    return int(level.rate_per_s * max(limits, default=0.0))


def short_runs(spec: SweepSpec) -> list[ShortRun]:
    """The levels at a fixed rate whose runs would be too short, in the spec's order."""
    found = []
    for plan in spec.workloads:
        for level in plan.levels:
            if not isinstance(level, OpenLoad):
                continue
            given = level.requests if level.requests is not None else int((level.duration_s or 0) * level.rate_per_s)
            needed = open_loop_requests(level, spec.slo)
            if given + level.warmup_requests < needed:
                found.append(ShortRun(workload=plan.workload.name, level=level, requests=given, needed=needed))
    return found
