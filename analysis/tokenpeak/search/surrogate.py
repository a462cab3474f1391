"""What is believed of every point after some were measured: a mixture of Gaussian processes over log objective.

Its members weigh as much as they explain what was measured, so a predictor that is wrong loses its say after a few
trials, and settings that fit the space at hand prevail.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from tokenpeak.search.members import Members
from tokenpeak.search.space import Floats, Integers, Space

UNHEARD = 1e-3
"""A member that counts less than this share of the heaviest is heard no more: it takes time and changes little."""
MOST_GAIN = 0.03
"""What is gained beyond 3% counts no more: many fair chances are better than one long shot."""
NORMAL_STEPS = ndtri((np.arange(24) + 0.5) / 24)
"""Equally likely values of a normal variable."""
JITTER = 1e-9
"""Added to a variance so that its root can be taken."""
TOGETHER = 16
"""Members whose covariances of all points are held at a time."""


@dataclass(frozen=True, kw_only=True)
class Belief:
    """Weights (members,), mean and standard deviation (members, points) of log objective, best high; of who is heard.

    `cross` (members, measured, points) is the covariance of the points in `measured` with all. `whitened` (members,
    launches, points) is the covariance of what was launched with all points, over the root of its own.
    """

    space: Space
    members: Members
    weights: Floats
    mean: Floats
    deviation: Floats
    measured: tuple[int, ...]
    cross: Floats
    whitened: Floats

    def average(self) -> Floats:
        """The mean over members, for each point."""
        result: Floats = self.weights @ self.mean
        return result

    def expected_gain(self, choices: Sequence[int]) -> Floats:
        """For each point, by how much (log) the best of `choices` and of it is expected to rise when it is launched.

        Launching a point of `choices` again may gain, too: it tells what its first launch was worth. Members that
        promise the moon count no more than MOST_GAIN. `choices` were measured.
        """
        rows = [self.measured.index(choice) for choice in choices]
        columns = list(choices)
        scale = 1 / np.sqrt(self.deviation**2 + self.members.noise[:, None])
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

    def draw(self, count: int, points: Integers, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """Functions that may be true (count, points), and the standard deviation between launches in each (count,)."""
        lots = (np.arange(count) + generator.random()) / count
        member = np.minimum(np.searchsorted(np.cumsum(self.weights), lots), self.members.count - 1)
        drawn = self.mean[member][:, points]
        drawers = np.unique(member)
        for start in range(0, len(drawers), TOGETHER):
            several = drawers[start : start + TOGETHER]
            told = self.whitened[several][:, :, points]
            own = self.members.only(several).covariance(self.space, points[:, None], points)
            left = own - np.swapaxes(told, 1, 2) @ told
            spread = np.trace(left, axis1=1, axis2=2)[:, None, None] / len(points)
            roots = np.linalg.cholesky(left + JITTER * (1 + spread) * np.eye(len(points)))
            for one, root in zip(several, roots, strict=True):
                rows = np.flatnonzero(member == one)
                drawn[rows] += generator.normal(size=(len(rows), len(points))) @ root.T
        return drawn, np.sqrt(self.members.noise[member])

    def chance_over(self, choices: Sequence[int], margin: float) -> Floats:
        """For each point, the probability that it exceeds the best of `choices` by more than `margin` (log)."""
        best = self.mean[:, list(choices)].max(axis=1, keepdims=True)
        chance: Floats = self.weights @ _cumulative((self.mean - best - margin) / self.deviation)
        return chance


def believe(
    space: Space,
    members: Members,
    trend: Floats,
    points: Sequence[int],
    values: Sequence[float],
    pending: Sequence[int],
) -> Belief:
    """The belief after `values` (log objective, best high) at `points`; `pending` points make sure without telling."""
    expected = np.where(np.isnan(space.expected), np.nan, np.log(space.expected))
    centred = np.nan_to_num(expected - np.nanmean(expected)) if not np.isnan(expected).all() else np.zeros(space.size)
    prior = members.trust[:, None] * centred + members.pull[:, None] * trend
    known, every = np.array([*points, *pending], dtype=np.int64), np.arange(space.size)
    measured, told = tuple(sorted(set(points))), len(points)
    noise = members.noise[:, None, None] * np.eye(len(known))
    factor = np.linalg.cholesky(members.covariance(space, known[:, None], known) + noise)
    corner = factor[:, :told, :told]
    level = float(np.mean(values)) if told else 0.0
    surprise = np.asarray(values) - level - prior[:, list(points)]
    scaled = np.linalg.solve(corner, surprise[:, :, None])[:, :, 0]
    evidence = -0.5 * (scaled**2).sum(axis=1) - np.log(np.diagonal(corner, axis1=1, axis2=2)).sum(axis=1)
    weights = members.prior * np.exp(evidence - evidence.max())
    heard = np.flatnonzero(weights >= UNHEARD * weights.max())
    members, weights = members.only(heard), weights[heard] / weights[heard].sum()
    prior, factor, scaled = prior[heard], factor[heard], scaled[heard]
    between = members.covariance(space, known[:, None], every)
    whitened = np.linalg.solve(factor, between)
    variance = members.covariance(space, every, every) - (whitened**2).sum(axis=1)
    first = [points.index(point) for point in measured]
    return Belief(
        space=space,
        members=members,
        weights=weights,
        mean=level + prior + (whitened[:, :told, :] * scaled[:, :, None]).sum(axis=1),
        deviation=np.sqrt(np.maximum(variance, 1e-10)),
        measured=measured,
        cross=between[:, first, :] - np.swapaxes(whitened[:, :, list(measured)], 1, 2) @ whitened,
        whitened=whitened,
    )


def _cumulative(values: Floats) -> Floats:
    """The normal distribution function."""
    cumulative: Floats = ndtr(values)
    return cumulative
