"""Posterior: the mixture of Gaussian processes over log objective, conditioned on the launches so far.

A component's weight follows from how well it explains the measurements: components that follow a wrong prediction are
pruned after a few trials, and hyperparameters that suit the space prevail.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from tokenpeak.search.mixture import Components
from tokenpeak.search.space import Floats, Integers, Space

PRUNED_BELOW = 1e-3
"""Components below this share of the largest weight are pruned: they take time and change little."""
MOST_GAIN = 0.03
"""What is gained beyond 3% counts no more: many fair chances are better than one long shot."""
NORMAL_STEPS = ndtri((np.arange(24) + 0.5) / 24)
"""Equally likely values of a normal variable."""
JITTER = 1e-9
"""Added to a variance so that its root can be used."""
TOGETHER = 16
"""Components whose covariances of all points are held at a time."""


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Weights (components,), mean and standard deviation (components, points) of log objective, best high; unpruned.

    `cross` (components, measured, points) is the covariance of the points in `measured` with all. `whitened`
    (components, launches, points) is the covariance of what was launched with all points, over the root of its own.
    """

    space: Space
    components: Components
    weights: Floats
    mean: Floats
    deviation: Floats
    measured: tuple[int, ...]
    cross: Floats
    whitened: Floats

    def average(self) -> Floats:
        """The mean over components, for each point."""
        result: Floats = self.weights @ self.mean
        return result

    def expected_gain(self, choices: Sequence[int]) -> Floats:
        """For each point, by how much (log) the best of `choices` and of it is expected to rise when it is launched.

        Launching a point of `choices` again may gain, too: it shows what its first launch was worth. A component's gain
        counts up to MOST_GAIN. `choices` were measured.
        """
        rows = [self.measured.index(choice) for choice in choices]
        columns = list(choices)
        scale = 1 / np.sqrt(self.deviation**2 + self.components.noise[:, None])
        before = self.mean[:, columns]
        best = before.max(axis=1)
        gain = np.zeros_like(self.mean)
        moved = self.cross[:, rows, :] * scale[:, None, :]
        own = self.deviation**2 * scale
        for step in NORMAL_STEPS:
            others = (before[:, :, None] + moved * step).max(axis=1)
            after = np.maximum(others, self.mean + own * step)
            gain += np.clip(after - best[:, None], -MOST_GAIN, MOST_GAIN) / len(NORMAL_STEPS)
        total: Floats = self.weights @ np.maximum(gain, 0.0)
        return total

    def sample(self, count: int, points: Integers, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """Posterior samples (count, points), and the standard deviation between launches in each (count,)."""
        lots = (np.arange(count) + generator.random()) / count
        component = np.minimum(np.searchsorted(np.cumsum(self.weights), lots), self.components.count - 1)
        drawn = self.mean[component][:, points]
        drawn_from = np.unique(component)
        for start in range(0, len(drawn_from), TOGETHER):
            several = drawn_from[start : start + TOGETHER]
            known = self.whitened[several][:, :, points]
            own = self.components.only(several).covariance(self.space, points[:, None], points)
            left = own - np.swapaxes(known, 1, 2) @ known
            spread = np.trace(left, axis1=1, axis2=2)[:, None, None] / len(points)
            roots = np.linalg.cholesky(left + JITTER * (1 + spread) * np.eye(len(points)))
            for one, root in zip(several, roots, strict=True):
                rows = np.flatnonzero(component == one)
                drawn[rows] += generator.normal(size=(len(rows), len(points))) @ root.T
        return drawn, np.sqrt(self.components.noise[component])

    def chance_over(self, choices: Sequence[int], margin: float) -> Floats:
        """For each point, the probability that it exceeds the best of `choices` by more than `margin` (log)."""
        best = self.mean[:, list(choices)].max(axis=1, keepdims=True)
        chance: Floats = self.weights @ _cumulative((self.mean - best - margin) / self.deviation)
        return chance


def condition(
    space: Space,
    components: Components,
    trend: Floats,
    points: Sequence[int],
    values: Sequence[float],
    pending: Sequence[int],
) -> Posterior:
    """The posterior after `values` (log objective, best high) at `points`; `pending` points only reduce variance."""
    expected = np.where(np.isnan(space.expected), np.nan, np.log(space.expected))
    centred = np.nan_to_num(expected - np.nanmean(expected)) if not np.isnan(expected).all() else np.zeros(space.size)
    prior = components.prediction_slope[:, None] * centred + components.trend_slope[:, None] * trend
    known, every = np.array([*points, *pending], dtype=np.int64), np.arange(space.size)
    measured, launches = tuple(sorted(set(points))), len(points)
    noise = components.noise[:, None, None] * np.eye(len(known))
    factor = np.linalg.cholesky(components.covariance(space, known[:, None], known) + noise)
    corner = factor[:, :launches, :launches]
    level = float(np.mean(values)) if launches else 0.0
    surprise = np.asarray(values) - level - prior[:, list(points)]
    scaled = np.linalg.solve(corner, surprise[:, :, None])[:, :, 0]
    evidence = -0.5 * (scaled**2).sum(axis=1) - np.log(np.diagonal(corner, axis1=1, axis2=2)).sum(axis=1)
    weights = components.prior_weights * np.exp(evidence - evidence.max())
    kept = np.flatnonzero(weights >= PRUNED_BELOW * weights.max())
    components, weights = components.only(kept), weights[kept] / weights[kept].sum()
    prior, factor, scaled = prior[kept], factor[kept], scaled[kept]
    between = components.covariance(space, known[:, None], every)
    whitened = np.linalg.solve(factor, between)
    variance = components.covariance(space, every, every) - (whitened**2).sum(axis=1)
    first = [points.index(point) for point in measured]
    return Posterior(
        space=space,
        components=components,
        weights=weights,
        mean=level + prior + (whitened[:, :launches, :] * scaled[:, :, None]).sum(axis=1),
        deviation=np.sqrt(np.maximum(variance, 1e-10)),
        measured=measured,
        cross=between[:, first, :] - np.swapaxes(whitened[:, :, list(measured)], 1, 2) @ whitened,
        whitened=whitened,
    )


def _cumulative(values: Floats) -> Floats:
    """The normal distribution function."""
    cumulative: Floats = ndtr(values)
    return cumulative
