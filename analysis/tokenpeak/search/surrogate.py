"""What is believed of every point after some were measured: Gaussian processes, averaged over their settings.

A belief is a mixture. Each of its members is a Gaussian process over log objective with settings of its own: how much
each axis matters, how far its influence reaches, how strongly axes interact, how much a config differs from what its
axes say, how noisy launches are, and how far the predictor is trusted. Members weigh as much as they explain what was
measured, so a predictor that is wrong loses its say after a few trials. Half of them trust the predictor and count for
more at first; the other half are as many so that enough is still believed once it has lost. Who trusts the predictor
also holds that it leaves out little and that launches are much alike; the others leave both open. Some take the plan's
word that configs of a class do not differ. Members are drawn once, from the seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from tokenpeak.search.space import Floats, Integers, Space

MEMBERS = 256
SCEPTICAL = 224
"""So many of the members hold that configs of a class may differ; the others take the plan's word."""
TRUST = 0.7
"""Belief, before any trial, that the predictor is right but for its scale and for what it does not know."""
ROUGHNESS = 0.15
"""The share of an ordered axis's variance that no smooth curve explains."""
MOST_GAIN = 0.03
"""What is gained beyond 3% counts no more: many fair chances are better than one long shot."""
NORMAL_STEPS = ndtri((np.arange(24) + 0.5) / 24)
"""Equally likely values of a normal variable."""
LEVEL_VARIANCE = 4.0
"""Variance of the unknown overall level, in log units: anything within e^±4 of the first measurement."""
JITTER = 1e-9
"""Added to a variance so that its root can be taken."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The members' settings, one row each; sizes are standard deviations of log objective."""

    tables: tuple[Floats, ...]
    """For each axis (members, values, values): how alike two of its values are, from 0 to 1."""
    main: Floats
    """(members, axes): variance that each axis explains alone."""
    together: Floats
    """(members,): how much pairs of axes explain beyond that."""
    residual: Floats
    """(members,): variance of a config's own difference."""
    noise: Floats
    """(members,): variance between launches."""
    trust: Floats
    """(members,): slope on the predictor's log value."""
    pull: Floats
    """(members,): slope on the usual trends of flags."""
    prior: Floats
    """(members,): what each counts before anything is measured; they sum to 1."""


@dataclass(frozen=True, kw_only=True)
class Belief:
    """Weights (members,), mean and standard deviation (members, points) of log objective, best high.

    `cross` (members, measured, points) is the covariance of the points in `measured` with all. `whitened` (members,
    launches, points) is the covariance of what was launched with all points, over the root of its own.
    """

    space: Space
    settings: Settings
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
        scale = 1 / np.sqrt(self.deviation**2 + self.settings.noise[:, None])
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
        member = np.minimum(np.searchsorted(np.cumsum(self.weights), lots), MEMBERS - 1)
        drawn = self.mean[member][:, points]
        for one in np.unique(member):
            rows = np.flatnonzero(member == one)
            told = self.whitened[one][:, points]
            left = _covariance(self.space, self.settings, slice(one, one + 1), points, points)[0] - told.T @ told
            jitter = JITTER * (1 + np.trace(left) / len(points)) * np.eye(len(points))
            drawn[rows] += generator.normal(size=(len(rows), len(points))) @ np.linalg.cholesky(left + jitter).T
        return drawn, np.sqrt(self.settings.noise[member])

    def chance_over(self, choices: Sequence[int], margin: float) -> Floats:
        """For each point, the probability that it exceeds the best of `choices` by more than `margin` (log)."""
        best = self.mean[:, list(choices)].max(axis=1, keepdims=True)
        chance: Floats = self.weights @ _cumulative((self.mean - best - margin) / self.deviation)
        return chance


def draw_settings(space: Space, generator: np.random.Generator, *, informed: bool) -> Settings:
    """Settings drawn from what is known of engines before any trial; `informed` when a predictor speaks."""
    count, axes = MEMBERS, len(space.axes)
    trusting = (np.arange(count) % 2 == 0) & informed
    amplitude = np.where(trusting, _lognormal(generator, 0.06, 0.4, count), _lognormal(generator, 0.25, 1.0, count))
    noise = np.where(trusting, _lognormal(generator, 0.006, 0.7, count), _lognormal(generator, 0.01, 1.0, count))
    relevance = _lognormal(generator, 1.0, 0.9, (count, axes)) ** 2
    share = relevance / relevance.sum(axis=1, keepdims=True) if axes else relevance
    reach = _lognormal(generator, 0.6, 0.6, (count, axes))
    return Settings(
        tables=tuple(
            _likeness(axis.positions, len(axis.values), reach[:, place]) for place, axis in enumerate(space.axes)
        ),
        main=amplitude[:, None] ** 2 * share,
        together=_lognormal(generator, 0.4, 1.0, count),
        residual=_lognormal(generator, 0.005, 0.8, count) ** 2,
        noise=noise**2,
        trust=np.where(trusting, generator.normal(1.0, 0.25, count), generator.normal(0.2, 0.7, count)),
        pull=generator.normal(1.0, 0.7, count),
        prior=np.where(trusting, TRUST, 1 - TRUST) / (count / 2) if informed else np.full(count, 1 / count),
    )


def believe(
    space: Space,
    settings: Settings,
    trend: Floats,
    points: Sequence[int],
    values: Sequence[float],
    pending: Sequence[int],
) -> Belief:
    """The belief after `values` (log objective, best high) at `points`; `pending` points make sure without telling."""
    expected = np.where(np.isnan(space.expected), np.nan, np.log(space.expected))
    centred = np.nan_to_num(expected - np.nanmean(expected)) if not np.isnan(expected).all() else np.zeros(space.size)
    prior = settings.trust[:, None] * centred + settings.pull[:, None] * trend
    own = _covariance_diagonal(settings)
    known = np.array([*points, *pending], dtype=np.int64)
    measured = tuple(sorted(set(points)))
    if not len(known):
        nothing = np.zeros((MEMBERS, 0, space.size))
        return Belief(
            space=space,
            settings=settings,
            weights=settings.prior,
            mean=prior,
            deviation=np.sqrt(own)[:, None] * np.ones(space.size),
            measured=(),
            cross=nothing,
            whitened=nothing,
        )
    every = np.arange(space.size)
    sceptical, others = slice(None, SCEPTICAL), slice(SCEPTICAL, None)
    between = np.concatenate([_covariance(space, settings, members, known, every) for members in (sceptical, others)])
    noise = settings.noise[:, None, None] * np.eye(len(known))
    factor = np.linalg.cholesky(between[:, :, known] + noise)
    whitened = np.linalg.solve(factor, between)
    deviation = np.sqrt(np.maximum(own[:, None] - (whitened**2).sum(axis=1), 1e-10))
    first = [points.index(point) for point in measured]
    cross = between[:, first, :] - np.swapaxes(whitened[:, :, list(measured)], 1, 2) @ whitened
    weights, mean = settings.prior, prior
    if told := len(points):
        level = float(np.mean(values))
        surprise = np.asarray(values) - level - prior[:, list(points)]
        corner = factor[:, :told, :told]
        scaled = np.linalg.solve(corner, surprise[:, :, None])[:, :, 0]
        evidence = -0.5 * (scaled**2).sum(axis=1) - np.log(np.diagonal(corner, axis1=1, axis2=2)).sum(axis=1)
        weights = settings.prior * np.exp(evidence - evidence.max())
        weights /= weights.sum()
        mean = level + prior + (whitened[:, :told, :] * scaled[:, :, None]).sum(axis=1)
    return Belief(
        space=space,
        settings=settings,
        weights=weights,
        mean=mean,
        deviation=deviation,
        measured=measured,
        cross=cross,
        whitened=whitened,
    )


def _covariance(space: Space, settings: Settings, members: slice, rows: Integers, columns: Integers) -> Floats:
    """(members, rows, columns): how measuring one point tells of another; all of them sceptical, or none."""
    as_one = np.arange(space.size) if (members.start or 0) < SCEPTICAL else space.head
    main = settings.main[members]
    first = np.zeros((len(main), len(rows), len(columns)))
    squares = np.zeros_like(first)
    for place, table in enumerate(settings.tables):
        level = space.levels[as_one, place]
        term = main[:, place, None, None] * table[members][:, level[rows][:, None], level[columns][None, :]]
        first += term
        squares += term**2
    total = np.maximum(main.sum(axis=1), 1e-12)[:, None, None]
    pairs = (first**2 - squares) / 2
    same = as_one[rows][:, None] == as_one[columns][None, :]
    together, residual = (part[members, None, None] for part in (settings.together, settings.residual))
    covariance: Floats = LEVEL_VARIANCE + first + together * pairs / total + residual * same
    return covariance


def _covariance_diagonal(settings: Settings) -> Floats:
    """(members,): the variance of a point before anything is measured; the same for all."""
    total = settings.main.sum(axis=1)
    pairs = (total**2 - (settings.main**2).sum(axis=1)) / 2
    diagonal: Floats = LEVEL_VARIANCE + total + settings.together * pairs / np.maximum(total, 1e-12) + settings.residual
    return diagonal


def _likeness(positions: tuple[float, ...] | None, values: int, reach: Floats) -> Floats:
    """(members, values, values): 1 on the diagonal; falls with distance for ordered values, 0 for others."""
    if positions is None:
        return np.broadcast_to(np.eye(values), (MEMBERS, values, values)).copy()
    place = np.array(positions)
    distance = place[:, None] - place[None, :]
    smooth = np.exp(-0.5 * (distance[None] / reach[:, None, None]) ** 2)
    likeness: Floats = (1 - ROUGHNESS) * smooth + ROUGHNESS * np.eye(values)
    return likeness


def _lognormal(generator: np.random.Generator, median: float, spread: float, size: object) -> Floats:
    """Values whose logarithm is normal around log(median) with this standard deviation."""
    drawn: Floats = median * np.exp(generator.normal(0.0, spread, size))  # type: ignore[call-overload]
    return drawn


def _cumulative(values: Floats) -> Floats:
    """The normal distribution function."""
    cumulative: Floats = ndtr(values)
    return cumulative
