"""Steady state of an open-loop run: the test (steady, overloaded, or too short), percentiles' intervals, its length.

Requests in flight are counted over the run's arrivals. At a rate that the engine holds they come back to a level; where
it is overloaded they grow by a share of the arrivals, 1 − capacity ÷ rate. The growth is the mean step of their number
between stretches of the run, and its standard error follows from how the steps differ (Student's t). Overloaded: it
grew with a confidence of 99.5%. Steady: with that confidence it grew by less than the margin. Otherwise the run is too
short to say, and `requests_needed` says how long one has to be.

The interval of a percentile follows from order statistics: how many of n independent values lie below the true one is
binomial. Values of one queue resemble their neighbours, so n values are worth fewer: the variance of the share below
the percentile between stretches of the run, against the binomial one, says how many.

Three things need requests: the test, which separates an overload of MARGIN from a steady state; the SLO's
percentiles, each of which rests on as many as would assure it were all within the limit; and the time that the engine
takes to fill, for which its first requests say nothing. Pure.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenpeak.ranking.intervals import requests_to_assure, share
from tokenpeak.records import PercentileIntervals, RunState, SteadyStateRecord
from tokenpeak.results.run_summary import per_request
from tokenpeak.spec.load import OpenLoad
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec

Numbers = NDArray[np.float64]

MARGIN = 0.3
"""Overloads of this share of capacity and more are distinguished from steady runs; 10% would take 8,300 requests. What
is overloaded does not depend on it."""
CONFIDENCE = 0.995
STRETCHES = 16
SETTLING_SHARE = 0.1
"""Of a run's arrivals, how many are left out while the engine fills."""
FEWEST_REQUESTS = 64
INTERVAL_CONFIDENCE = 0.95
PERCENTILE_STRETCHES = 8
FEWEST_BEYOND = 2
"""Values beyond the percentile in each stretch, on average, from which on stretches can be compared."""
ALWAYS = (("ttft_s", "p95"), ("tpot_s", "p95"))
"""Metrics whose intervals are known without an SLO too: rate curves show them."""
SERVICE_VARIANCE = 1.0
"""Squared variation of service times: that of an exponential one, more than engines show whose answers have one
length."""


def steady_state(due_s: Numbers, ended_s: Numbers) -> SteadyStateRecord:
    """The state of a run whose requests were due and ended at these moments; one that never ended ends at inf."""
    by_due = np.argsort(due_s)
    due, ended = due_s[by_due], ended_s[by_due]
    number = int(due.size)
    begin = _settled(due, ended)
    if number - begin < FEWEST_REQUESTS:
        return SteadyStateRecord(
            state="too_short", growth=None, growth_error=None, margin=MARGIN, requests_needed=requests_needed()
        )
    marks = np.linspace(begin, number - 1, STRETCHES + 1).astype(int)
    in_flight = marks + 1 - np.searchsorted(np.sort(ended), due[marks], side="right")
    length = float(marks[-1] - marks[0]) / STRETCHES
    steps = np.diff(in_flight.astype(np.float64))
    growth = float(steps.mean()) / length
    # A step is a whole number of requests, so it is not known better than that.
    spread = float(np.hypot(steps.std(ddof=1), 0.5))
    error = spread / np.sqrt(STRETCHES) / length
    from scipy.special import stdtrit

    within = float(stdtrit(STRETCHES - 1, CONFIDENCE)) * error
    state: RunState = "too_short"
    if growth > within:
        state = "overloaded"
    elif growth + within < MARGIN / (1 + MARGIN):
        state = "steady"
    variance = spread**2 / length
    return SteadyStateRecord(
        state=state, growth=growth, growth_error=error, margin=MARGIN, requests_needed=requests_needed(variance)
    )


def _settled(due: Numbers, ended: Numbers) -> int:
    """The first arrival after the engine has filled: after a tenth of them, and after the first ones' latency."""
    if not due.size:
        return 0
    first = (ended - due)[: max(1, due.size // 5)]
    latency = float(np.quantile(first[np.isfinite(first)], 0.9)) if np.isfinite(first).any() else 0.0
    return max(int(SETTLING_SHARE * due.size), int(np.searchsorted(due, due[0] + latency)))


def requests_needed(variance: float = 2.0) -> int:
    """The requests after which an overload of the margin shows, 99 times in 100.

    `variance` is that of the number in flight per arrival: the squared variations of gaps and of service times,
    together 2 for Poisson arrivals and exponential service. The growth's standard error over n requests is
    √(variance ÷ n).
    """
    growth = MARGIN / (1 + MARGIN)
    from scipy.special import stdtrit

    errors = float(stdtrit(STRETCHES - 1, CONFIDENCE) + stdtrit(STRETCHES - 1, 0.99))
    return int(np.ceil(variance * (errors / growth) ** 2 / (1 - SETTLING_SHARE)))


def percentile_interval(
    values: Numbers, share: float, *, confidence: float = INTERVAL_CONFIDENCE
) -> tuple[float | None, float | None]:
    """Both ends of the interval of a percentile, `share` as 0.95, of values in the order of their requests.

    None: that end lies beyond what so few values show.
    """
    from scipy.stats import binom  # most of a second, which a load client has after its run and not before

    number = int(values.size)
    if not number:
        return None, None
    # Few values beyond the percentile do not show how alike they are; the middle ones do, and are more so.
    each = min(1.0, _independence(values, share, confidence), _independence(values, 0.5, confidence))
    worth = max(1, round(number * each))
    tail = (1 - confidence) / 2
    below = float(binom.ppf(tail, worth, share)) / worth
    above = (float(binom.ppf(1 - tail, worth, share)) + 1) / worth
    ordered = np.sort(values)
    low = float(ordered[max(0, int(np.floor(below * number)) - 1)]) if below > 0 else None
    high = float(ordered[min(number, int(np.ceil(above * number))) - 1]) if above <= 1 else None
    return low, high


def _independence(values: Numbers, share: float, confidence: float) -> float:
    """How many independent values each of these is worth, at most 1."""
    number = values.size
    stretches = min(PERCENTILE_STRETCHES, int(number * min(share, 1 - share) / FEWEST_BEYOND))
    if stretches < 4:
        return 1.0
    below = values <= np.quantile(values, share)
    means = np.array([part.mean() for part in np.array_split(below, stretches)])
    variance = float(means.var(ddof=1)) / stretches
    # The variance is itself known by few stretches only.
    tail = (1 + confidence) / 2
    from scipy.special import stdtrit  # half a second, which reading an archive does not spend

    wider = float(stdtrit(stretches - 1, tail) / stdtrit(1e6, tail)) ** 2
    binomial = share * (1 - share) / number
    return binomial / (variance * wider) if variance > 0 else 1.0


def steady_state_of(requests: pl.DataFrame) -> SteadyStateRecord:
    """The state of a run with these requests, failed ones left out."""
    ended = requests.filter(pl.col("error").is_null())
    return steady_state(ended["due_s"].to_numpy(), ended["last_token_s"].to_numpy())


def percentile_intervals(requests: pl.DataFrame, slo: Slo, state: SteadyStateRecord) -> PercentileIntervals:
    """The interval of each percentile of the SLO, ITL's left out, which are of gaps; none of an overloaded run."""
    if state.state == "overloaded":
        return {}
    ok = per_request(requests, from_due=True).sort("due_s")
    wanted = dict.fromkeys((*((metric, percentile) for metric, percentile, _ in slo.limits()), *ALWAYS))
    intervals: PercentileIntervals = {}
    for metric, percentile in wanted:
        if metric == "itl_s":
            continue
        values = ok[metric].drop_nulls().to_numpy().astype(np.float64)
        intervals[f"{metric}_{percentile}"] = percentile_interval(values, share(percentile))
    return intervals


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
            f"overload of {MARGIN:.0%}, or to assure the SLO. "
            f"Set requests: {self.needed} ({seconds:.0f} s), or use max_rate_under"
        )


def open_loop_requests(level: OpenLoad, slo: Slo) -> int:
    """The measured and warm-up requests that a run at this rate needs."""
    spread = {"constant": 0.0, "poisson": 1.0, "gamma": 1 / level.burstiness}[level.arrivals]
    state = requests_needed(spread + SERVICE_VARIANCE)
    percentiles = [requests_to_assure(share(percentile)) for _, percentile, _ in slo.limits()]
    return max([state + filling_requests(level, slo), *percentiles])


def filling_requests(level: OpenLoad, slo: Slo) -> int:
    """Requests that come while the first one is served, where the SLO limits how long that takes."""
    limits = [limit for metric, _, limit in slo.limits() if metric in ("ttft_s", "latency_s")]
    return int(level.rate_per_s * max(limits, default=0.0))


def short_runs(spec: SweepSpec) -> list[ShortRun]:
    """The levels at a fixed rate whose runs would be too short, in the spec's order."""
    short = []
    for plan in spec.workloads:
        for level in plan.levels:
            if not isinstance(level, OpenLoad):
                continue
            requests = level.requests if level.requests is not None else int((level.duration_s or 0) * level.rate_per_s)
            needed = open_loop_requests(level, spec.slo)
            if requests + level.warmup_requests < needed:
                short.append(ShortRun(workload=plan.workload.name, level=level, requests=requests, needed=needed))
    return short
