"""The highest rate within an SLO, as a pure search: probes in, the next rate or the answer out.

A probe at rate r sees the worst metric ÷ its limit, `ratio`, with a relative standard error. Near the highest rate θ,
ln ratio = s·(ln r − ln θ) with an unknown slope s; a probe further from its limit says less about where θ is, so its
error widens by half its distance. A grid over θ and s carries what is known; a flat prior over ln θ, a start (a
prediction or an earlier result) is only where the first probe goes. The next probe goes where θ is believed to be, but
not where one has just been: the search ends when the interval is narrow and a long probe has confirmed a rate inside.

Screening probes are short. Once the interval is within a few tolerances, probes are confirming ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

SLOPES = np.geomspace(0.7, 60.0, 24)
DISTANCE_SHARE = 0.4
FLOOR_SPREAD = 0.02
FARTHEST = np.log(8.0)
REACH = 256.0
"""The search looks from a start ÷ this to a start × this."""
GRID = 2400
SCREENING_WIDTH = 4.0
STRETCHES = 10
RESAMPLES = 60


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What one rate showed. `ratio` is inf where too many requests failed."""

    rate_per_s: float
    requests: int
    ratio: float
    spread: float
    achieved_per_s: float | None = None
    """Requests that ended per second: an overloaded server shows its capacity by it."""

    @property
    def holds(self) -> bool:
        """Every limit held."""
        return self.ratio <= 1.0


@dataclass(frozen=True, kw_only=True)
class Try:
    """The next probe."""

    rate_per_s: float
    confirming: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """The answer: θ is within `low`..`high` with at least `confidence`, as far as the probes tell."""

    rate_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    confidence: float
    ended: Literal["found", "budget", "probes", "unreachable", "unbounded"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is looked for. `tolerance` is the half-width of the interval as a share of the rate."""

    start_per_s: float
    tolerance: float = 0.05
    confidence: float = 0.9
    max_probes: int = 12
    lowest_per_s: float | None = None
    highest_per_s: float | None = None

    def step(self, probes: Sequence[Probe], *, out_of_budget: bool = False) -> Try | Found:
        """What to do after these probes."""
        if not probes:
            return Try(rate_per_s=self.start_per_s, confirming=False)
        low, high = self._reach()
        holding = [probe.rate_per_s for probe in probes if probe.holds]
        missing = [probe.rate_per_s for probe in probes if not probe.holds]
        if out_of_budget or len(probes) >= self.max_probes:
            return self._answer(probes, "budget" if out_of_budget else "probes")
        if not missing:
            if max(holding) >= high * 0.999:
                return self._answer(probes, "unbounded")
            return Try(rate_per_s=min(high, self._up(probes)), confirming=False)
        if not holding:
            if min(missing) <= low * 1.001:
                return self._answer(probes, "unreachable")
            return Try(rate_per_s=max(low, self._down(probes)), confirming=False)
        belief = self._belief(probes)
        begin, middle, end = _quantiles(belief, ((1 - self.confidence) / 2, 0.5, (1 + self.confidence) / 2))
        width = (end - begin) / 2 / middle
        near = [probe for probe in probes if abs(probe.rate_per_s / middle - 1) <= 1.5 * self.tolerance]
        most = max(probe.requests for probe in probes)
        confirmed = any(probe.requests == most for probe in near) and len(near) >= 2
        if width <= self.tolerance and confirmed:
            return self._answer(probes, "found")
        return Try(rate_per_s=self._where(probes, middle, width), confirming=width <= SCREENING_WIDTH * self.tolerance)

    def _reach(self) -> tuple[float, float]:
        return self.lowest_per_s or self.start_per_s / REACH, self.highest_per_s or self.start_per_s * REACH

    def _up(self, probes: Sequence[Probe]) -> float:
        """Higher than every rate so far, by as much as the margin allows."""
        best = max(probes, key=lambda probe: probe.rate_per_s)
        return best.rate_per_s * float(np.clip(best.ratio**-0.4, 1.15, 2.0))

    def _down(self, probes: Sequence[Probe]) -> float:
        """Lower than every rate so far: at what the overloaded server achieved, or by as much as it was missed."""
        worst = min(probes, key=lambda probe: probe.rate_per_s)
        factor = float(np.clip(worst.ratio**-0.4, 0.4, 0.9))
        if worst.achieved_per_s is not None and worst.achieved_per_s < 0.95 * worst.rate_per_s:
            return min(worst.rate_per_s * 0.9, max(worst.achieved_per_s * 0.9, worst.rate_per_s * 0.1))
        return worst.rate_per_s * factor

    def _where(self, probes: Sequence[Probe], middle: float, width: float) -> float:
        """Where θ is believed to be, but inside the narrowest bracket that the probes leave."""
        below = [probe.rate_per_s for probe in probes if probe.holds and probe.rate_per_s < middle]
        above = [probe.rate_per_s for probe in probes if not probe.holds and probe.rate_per_s > middle]
        if width > SCREENING_WIDTH * self.tolerance and below and above:
            floor, ceiling = max(below), min(above)
            share = float(np.clip(np.log(middle / floor) / np.log(ceiling / floor), 0.2, 0.8))
            return float(floor * (ceiling / floor) ** share)
        # Repeats a little to either side of θ tell its slope and place better than repeats on one spot.
        side = 1 if len(probes) % 2 else -1
        return float(middle * (1 + side * min(self.tolerance, width) * 0.3))

    def _belief(self, probes: Sequence[Probe]) -> tuple[Numbers, Numbers]:
        """θ's grid and its probability."""
        low, high = self._reach()
        holding = [probe.rate_per_s for probe in probes if probe.holds]
        missing = [probe.rate_per_s for probe in probes if not probe.holds]
        if holding and missing:
            rates = holding + missing
            low, high = max(low, min(rates) / 1.5), min(high, max(rates) * 1.5)
        thetas = np.geomspace(low, high, GRID)
        log_likelihood = np.zeros((GRID, SLOPES.size))
        for probe in probes:
            seen = float(np.clip(np.log(max(probe.ratio, 1e-9)), -FARTHEST, FARTHEST))
            expected = SLOPES[None, :] * (np.log(probe.rate_per_s) - np.log(thetas)[:, None])
            expected = np.clip(expected, -FARTHEST, FARTHEST)
            error = np.hypot(max(probe.spread, FLOOR_SPREAD), DISTANCE_SHARE * abs(seen))
            # A heavy tail: one probe that a hiccup spoiled must not outvote the others.
            log_likelihood -= 2.5 * np.log1p(((seen - expected) / error) ** 2 / 4) + np.log(error)
        weight = np.exp(log_likelihood - log_likelihood.max()).sum(axis=1)
        return thetas, weight / weight.sum()

    def _answer(
        self, probes: Sequence[Probe], ended: Literal["found", "budget", "probes", "unreachable", "unbounded"]
    ) -> Found:
        holding = [probe.rate_per_s for probe in probes if probe.holds]
        missing = [probe.rate_per_s for probe in probes if not probe.holds]
        if not holding:
            return Found(
                rate_per_s=None, low_per_s=None, high_per_s=min(missing), confidence=self.confidence, ended=ended
            )
        if not missing:
            best = max(holding)
            return Found(rate_per_s=best, low_per_s=best, high_per_s=None, confidence=self.confidence, ended=ended)
        belief = self._belief(probes)
        begin, middle, end = _quantiles(belief, ((1 - self.confidence) / 2, 0.5, (1 + self.confidence) / 2))
        return Found(rate_per_s=middle, low_per_s=begin, high_per_s=end, confidence=self.confidence, ended=ended)


def _quantiles(belief: tuple[Numbers, Numbers], shares: tuple[float, ...]) -> list[float]:
    thetas, weight = belief
    total = np.cumsum(weight)
    return [float(thetas[min(int(np.searchsorted(total, share)), thetas.size - 1)]) for share in shares]


def percentile_spread(values: Numbers, percent: float, random: np.random.Generator) -> float:
    """Relative standard error of a percentile over requests in order of time, by resampling blocks of them.

    Neighbouring requests share a queue, so single requests are not independent; blocks of about √n nearly are.
    """
    if values.size < 8:
        return 1.0
    length = max(2, int(np.sqrt(values.size)))
    blocks = -(-values.size // length)
    starts = random.integers(0, values.size - length + 1, (RESAMPLES, blocks))
    samples = values[(starts[:, :, None] + np.arange(length)).reshape(RESAMPLES, -1)]
    found = np.percentile(samples, percent, axis=1)
    centre = float(np.percentile(values, percent))
    return float(np.std(found) / centre) if centre > 0 else 1.0


def growth(due_s: Numbers, values_s: Numbers) -> tuple[float, float]:
    """Seconds by which a delay grew per second of a run, with its standard error; (0, inf) for too few requests.

    Requests are in order of `due_s`. From the medians of ten stretches of the run: a queue below capacity comes back to
    where it was, so its steps cancel; beyond capacity they add up.
    """
    if due_s.size < 5 * STRETCHES:
        return 0.0, np.inf
    middles = np.array([float(np.median(stretch)) for stretch in np.array_split(values_s, STRETCHES)])
    steps = np.diff(middles)
    step_s = float(due_s[-1] - due_s[0]) / STRETCHES
    if step_s <= 0:
        return 0.0, np.inf
    return float(steps.mean()) / step_s, float(steps.std(ddof=1) / np.sqrt(steps.size)) / step_s
