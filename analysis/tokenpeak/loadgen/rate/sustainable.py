"""Search for the sustainable rate, pure: probes in, the next probe or the answer out.

The sustainable rate is the highest at which, in steady state under the given arrivals, every percentile of the SLO is
within its limit; it is at most the engine's saturated throughput. A first probe saturates the engine by a closed loop.
Open-loop probes below follow, from which a queue model is estimated (queue_estimate): it says how the percentiles grow
on the way to capacity, over a run of any length. Further probes go where the model places the rate. What they show
differs from the model by their own noise, which the model gives for their very arrivals, and by the model's error,
which a common factor on the percentiles takes up. The interval holds both, how few works were seen, and what no probe
shows of the model's error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from tokenpeak.loadgen.rate.probe import ProbeAsked, ProbeSeen
from tokenpeak.loadgen.rate.queue import HIGHEST_SHARE, WARMUP_SHARE, Limits, ModelRuns, QueueModel, worst_ratio
from tokenpeak.loadgen.rate.queue_estimate import estimate_models
from tokenpeak.ranking.intervals import share
from tokenpeak.records import MaxRate
from tokenpeak.spec.load import search_time_s

FIRST_CONCURRENCY = 32
MOST_CONCURRENCY = 1024
SATURATION_REQUESTS = 500
SATURATION_SHARE = 0.12
"""Of the time that the search may take, the most for a saturation probe."""
RAMP_SHARE = 0.1
"""Of a closed loop's requests, the most that may end while it begins."""
FLAT = 1.1
"""A closed loop of four times the concurrency that ends no more than this many times the requests is saturated too."""
MODERATE = ((0.55, 350), (0.8, 600))
"""First shares of capacity, with the requests of their probes."""
CLOSE_TO_CAPACITY = 0.97
NEAR = 0.15
"""Probes within this share of the rate show the model's error there."""
MODEL_ERROR = 0.03
MODEL_ERROR_GAPS = 0.7
"""Relative error of the model's percentiles: of its own metrics, and of gaps between tokens, which it takes for the
mean gap of a request."""
BEYOND_NOISE = 6.0
"""Variances of its noise by which a probe differs from the model only if the model is wrong, 98 times in 100."""
SHIFT_ERROR = 0.5
"""Of a correction of the model, how much may be wrong."""
HELD_WITH_ROOM = 0.7
"""Of the limits, what a probe shows that does not hold by chance."""
FAILING_PROBES = 2
REPLICAS = 16
"""Model runs that show a probe's noise; with six a chance outlier passed for a wrong model and moved a rate by 9%."""
LEAST_ERROR = 0.006
"""Of ln rate, the model's error that more probes would not show."""
BELOW_CAPACITY = 1.5
"""The answer is at least this many of capacity's standard errors below it: a rate above breaks whatever the limits."""
MOST = 20_000


Ending = Literal["found", "budget", "probes", "unreachable"]
"""Why a search asks for no further probe."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where the rate is, by all probes so far: ln rate with its standard error, and how the ratio grows there."""

    rate_per_s: float
    error: float
    slope: float
    capacity_per_s: float
    capacity_error: float


@dataclass(frozen=True, kw_only=True)
class SustainableRateSearch:
    """The search. `tolerance`: half the interval's width as a share of the rate at which it may end."""

    limits: Limits
    arrivals: str = "poisson"
    burstiness: float = 1.0
    tolerance: float = 0.05
    confidence: float = 0.9
    fewest_requests: int = 200
    """Of an open loop."""
    near_requests: int = 1000
    """Requests seen near the rate before the search may end, if there is time for them."""
    max_probes: int = 10
    budget_s: float = 600.0

    def step(self, probes: Sequence[ProbeSeen]) -> ProbeAsked | MaxRate:
        """The next probe after these, or how the search ended, the probes themselves left out."""
        closed = [probe for probe in probes if probe.asked.concurrency is not None]
        opened = [probe for probe in probes if probe.asked.rate_per_s is not None]
        asked = self._saturate(closed) if not opened else None
        if asked is not None:
            return asked
        saturation, error = closed[-1].completions_per_s()
        if not opened:
            share, requests = MODERATE[0]
            return self._open(share * saturation, requests)
        holding = [probe for probe in opened if not self._failing(probe)]
        if not holding:
            # Failures may be those of an overload: a low rate shows which.
            if len(opened) < FAILING_PROBES and len(probes) < self.max_probes:
                return self._open(opened[-1].asked.rate_per_s / 4, self.fewest_requests)  # type: ignore[operator]
            return self._unreachable(opened, saturation, error)
        place = self._place(probes)
        if self._contradicted(place, holding):
            place = self._place(opened, at_most_per_s=saturation)
        if place is None:
            return self._unreachable(opened, saturation, error)
        spent = sum(probe.duration_s for probe in probes)
        left = self._time(place) - spent
        target = self.tolerance / 2 / self._z
        near = sum(
            probe.timings.due_s.size
            for probe in opened
            if abs(np.log((probe.asked.rate_per_s or 0) / place.rate_per_s)) < NEAR
        )
        enough = place.error <= target and near >= self.near_requests
        rate = min(place.rate_per_s, CLOSE_TO_CAPACITY * place.capacity_per_s)
        affordable = int(left * rate / (1 + WARMUP_SHARE))
        if enough or len(probes) >= self.max_probes or affordable < self.fewest_requests:
            return self._answer(place, saturation, error, self._ended(place, affordable, enough=enough))
        if len(opened) < len(MODERATE):
            share, requests = MODERATE[len(opened)]
            return self._open(min(share * saturation, rate), min(requests, affordable))
        seen = sum(probe.timings.due_s.size for probe in probes)
        wanted = int(seen * ((place.error / target) ** 2 - 1) * 1.1)
        # The last two probes share what is left: the second goes where the first has moved the rate.
        part = affordable if len(opened) > len(MODERATE) or affordable < 3 * self.fewest_requests else affordable // 2
        return self._open(
            rate, int(np.clip(max(wanted, self.near_requests - near), self.fewest_requests, min(part, MOST)))
        )

    def _ended(self, place: _Place, affordable: int, *, enough: bool) -> Ending:
        if not enough and affordable >= self.fewest_requests:
            return "probes"
        return "found" if place.error * self._z <= 2 * self.tolerance else "budget"

    @property
    def _z(self) -> float:
        """Standard errors to either side that hold the confidence."""
        return NormalDist().inv_cdf(0.5 + self.confidence / 2)

    def _time(self, place: _Place) -> float:
        return search_time_s(place.rate_per_s, self.budget_s)

    def _saturate(self, closed: Sequence[ProbeSeen]) -> ProbeAsked | None:
        """The next closed loop; None once one is known to saturate the engine."""
        concurrency = FIRST_CONCURRENCY
        if closed:
            last = closed[-1]
            rate = last.completions_per_s()[0]
            slow = last.timings.due_s.size > 0 and self.observed_ratio(last) > 1
            flat = len(closed) > 1 and rate < FLAT * closed[-2].completions_per_s()[0]
            idle = last.asked.concurrency or 1
            works = float(np.min(last.timings.metric("latency_s"))) if last.timings.due_s.size else 0.0
            queued = rate * works < 0.5 * idle and slow
            is_last = len(closed) >= self.max_probes - 1
            ended = flat or queued or slow or idle >= MOST_CONCURRENCY
            if is_last or last.failed_share > 0.5 or (ended and (last.asked.ramp_s or not last.lockstep)):
                return None
            concurrency = idle if ended else 4 * idle
        requests = max(SATURATION_REQUESTS, 4 * concurrency)
        return ProbeAsked(
            concurrency=concurrency,
            requests=requests,
            duration_s=SATURATION_SHARE * self.budget_s,
            ramp_s=self._ramp_s(closed[-1], concurrency, requests) if closed and closed[-1].lockstep else 0.0,
        )

    def _ramp_s(self, last: ProbeSeen, concurrency: int, requests: int) -> float:
        """Time in which to begin: about a latency, so that requests that take as long do not run in lockstep."""
        latency = float(np.median(last.timings.metric("latency_s"))) * concurrency / (last.asked.concurrency or 1)
        return min(latency, RAMP_SHARE * requests / last.completions_per_s()[0])

    def _open(self, rate: float, requests: int) -> ProbeAsked:
        return ProbeAsked(rate_per_s=float(rate), requests=int(requests))

    def _failing(self, probe: ProbeSeen) -> bool:
        allowed = min(1 - share(percentile) for _, percentile, _ in self.limits)
        return probe.failed_share > allowed

    def observed_ratio(self, probe: ProbeSeen, skip: float = WARMUP_SHARE) -> float:
        """The worst percentile ÷ its limit of a probe, its warm-up left out."""
        return worst_ratio(self.limits, probe.timings, skip, probe.failed_share, probe.gaps)

    def observed_spread(self, probe: ProbeSeen) -> float:
        """Relative standard error of `observed_ratio`, by stretches of the probe."""
        number = probe.timings.due_s.size
        if number < 100:
            return 1.0
        fifth = number // 5
        parts = [worst_ratio(self.limits, probe.timings.part(part * fifth, fifth)) for part in range(5)]
        mean = float(np.mean(parts))
        return float(np.std(parts, ddof=1) / np.sqrt(len(parts)) / mean) if mean > 0 else 1.0

    def _place(self, probes: Sequence[ProbeSeen], at_most_per_s: float = np.inf) -> _Place | None:
        """Where the queue models, corrected by the probes, place the rate; None where no rate holds.

        `at_most_per_s`: what is known of capacity where none of the probes shows it.
        """
        free = [probe for probe in probes if probe.asked.ramp_s or not probe.lockstep]
        best, *drawn = estimate_models(free if any(probe.asked.concurrency for probe in free) else probes)
        failed = self._failed_below(probes)
        runs = ModelRuns(best, self.limits, self.arrivals, self.burstiness, failed)
        crossed = runs.crossing()
        if crossed is None:
            return None
        crossing, slope = crossed
        shift, shift_error = self._correction(best, probes, crossing, failed)
        rate, finite = runs.settled(crossing, slope, shift)
        # Models that are as likely place the rate elsewhere, by the same short run and their own corrections.
        here = runs.log_ratio(runs.served(crossing, runs.short)) + shift
        offsets = []
        for model in drawn:
            own_shift, _ = self._correction(model, probes, crossing, failed)
            offsets.append((here - runs.log_ratio(runs.served(crossing, runs.short, model)) - own_shift) / slope)
        moved = np.clip(offsets, -0.3, 0.3)
        capacities = np.minimum([model.capacity_per_s for model in drawn], min(at_most_per_s, 1e9))
        capacity = float(capacities.mean())
        rate = min(rate * float(np.exp(moved.mean())), HIGHEST_SHARE * capacity)
        spread, works = runs.resampled(rate, slope)
        error = np.sqrt(spread**2 + moved.var() + (shift_error**2 + finite**2) / slope**2 + LEAST_ERROR**2)
        return _Place(
            rate_per_s=rate,
            error=float(error),
            slope=slope,
            capacity_per_s=capacity,
            capacity_error=float(np.hypot(works, capacities.std() / capacity)),
        )

    def _contradicted(self, place: _Place | None, opened: Sequence[ProbeSeen]) -> bool:
        """Whether the rate is placed below one that held with room, or nowhere though one did."""
        highest = 0.0 if place is None else place.rate_per_s * float(np.exp(self._z * place.error))
        return any(
            (probe.asked.rate_per_s or 0.0) > highest and self.observed_ratio(probe) <= HELD_WITH_ROOM
            for probe in opened
        )

    def _failed_below(self, probes: Sequence[ProbeSeen]) -> float:
        opened = [probe for probe in probes if probe.asked.rate_per_s is not None and not self._failing(probe)]
        total = sum(probe.failed + probe.timings.due_s.size for probe in opened)
        return sum(probe.failed for probe in opened) / total if total else 0.0

    def _correction(
        self, model: QueueModel, probes: Sequence[ProbeSeen], rate: float, failed: float
    ) -> tuple[float, float]:
        """By how much ln ratio is above the model's near a rate, with its standard error."""
        itl = any(metric == "itl_s" for metric, _, _ in self.limits)
        seen, noises = [], []
        for probe in probes:
            if probe.asked.rate_per_s is None or abs(np.log(probe.asked.rate_per_s / rate)) > NEAR:
                continue
            random = np.random.default_rng(23)
            due = probe.timings.due_s
            replicas = [
                np.log(worst_ratio(self.limits, model.serve(due, random.random(due.size)), WARMUP_SHARE, failed))
                for _ in range(REPLICAS)
            ]
            seen.append(np.log(self.observed_ratio(probe)) - float(np.mean(replicas)))
            noises.append(float(np.var(replicas, ddof=1)) + 0.01**2)
        prior = (MODEL_ERROR_GAPS if itl else MODEL_ERROR) ** 2
        if not seen:
            return 0.0, float(np.sqrt(prior))
        # A model that is further off than the noise explains is trusted less.
        excess = np.array(seen) ** 2 - BEYOND_NOISE * np.array(noises)
        prior += max(0.0, float(np.average(excess, weights=1 / np.array(noises))))
        precision = 1 / prior + float(np.sum(1 / np.array(noises)))
        shift = float(np.sum(np.array(seen) / np.array(noises)) / precision)
        # The factor holds for the probes' rates; elsewhere it is not known to hold.
        return shift, float(np.hypot(np.sqrt(1 / precision), SHIFT_ERROR * shift))

    def _answer(self, place: _Place, saturation: float, error: float, ended: Ending) -> MaxRate:
        wide = float(np.exp(self._z * place.error))
        below = place.capacity_per_s * float(np.exp(-BELOW_CAPACITY * place.capacity_error))
        rates = (min(place.rate_per_s, below), place.rate_per_s / wide, place.rate_per_s * wide)
        return self._max_rate(ended, rates, saturation, error)

    def _unreachable(self, opened: Sequence[ProbeSeen], saturation: float, error: float) -> MaxRate:
        lowest = min(probe.asked.rate_per_s or np.inf for probe in opened)
        return self._max_rate("unreachable", (None, None, lowest), saturation, error)

    def _max_rate(
        self, ended: Ending, rates: tuple[float | None, float | None, float], saturation: float, error: float
    ) -> MaxRate:
        """The record of a search: the rate and the saturated throughput, each with the ends of its interval."""
        wide = float(np.exp(self._z * error / saturation)) if np.isfinite(error) else None
        return MaxRate(
            rate_per_s=rates[0],
            low_per_s=rates[1],
            high_per_s=rates[2],
            confidence=self.confidence,
            ended=ended,
            saturation_per_s=saturation,
            saturation_low_per_s=saturation / wide if wide else None,
            saturation_high_per_s=saturation * wide if wide else None,
        )
