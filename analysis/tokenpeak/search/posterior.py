"""Posterior: log objective after the launches so far, by a mixture of Gaussian processes; samples and acquisition.

Each component has hyperparameters of its own, drawn once, from the seed: the relevance and length scale of each axis,
interactions, the residual of a config, the noise between launches, and the slope on the prediction. Half of the
components are the informed prior: they follow the prediction and have the larger weight at first. They expect that the
prediction leaves little out, mostly a slope and a bend along an axis, and that launches are much alike. The other half
is uninformed, and as large, so that enough components remain when the prediction is wrong. Some components assume, as
the plan says, that configs of a class do not differ.

Acquisition is counted over many posterior samples, each of which gives a point a value, or a failure: how likely a
point is as good as the best of its sample, and how likely only the launch after it is, once its result has excluded
samples. The best config that works often lies next to configs that fail: the second probability makes the search launch
where the limit is uncertain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tokenpeak.search.feasibility import Region
from tokenpeak.search.space import Axis, Floats, Integers, Space

COMPONENTS = 512
ONE_CLASS_IN = 8
"""One component of so many assumes that configs of a class do not differ."""
INFORMED_WEIGHT = 0.7
"""Prior weight of the informed components, whose prediction is right but for its scale and for what it leaves out."""
CURVED = 0.7
"""Share of informed components that model an ordered axis as a slope and a bend."""
ROUGHNESS = 0.15
"""The share of an ordered axis's variance that likeness of near values does not explain."""
LEVEL_VARIANCE = 4.0
"""Variance of the unknown overall level, in log units: anything within e^±4 of the first measurement."""
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
SAMPLES = 2048
GRADES = 6
"""Results that a launch is assumed to distinguish, beside its failure."""


@dataclass(frozen=True, kw_only=True)
class Components:
    """The components' hyperparameters, one row each, in units of log objective."""

    tables: tuple[Floats, ...]
    """For each axis (components, values, values): correlation of two of its values; the diagonal is 1 on average."""
    main: Floats
    """(components, axes): variance that each axis explains alone."""
    together: Floats
    """(components,): how much pairs of axes explain beyond that."""
    residual: Floats
    """(components,): variance of a config's own difference."""
    noise: Floats
    """(components,): variance between launches."""
    prediction_slope: Floats
    """(components,): slope on the log prediction."""
    trend_slope: Floats
    """(components,): slope on the usual trends of flags."""
    by_class: NDArray[np.bool_]
    """(components,): assumes that configs of a class do not differ."""
    prior_weights: Floats
    """(components,): component weights before any trial; they sum to 1."""

    @property
    def count(self) -> int:
        """The number of components."""
        return len(self.prior_weights)

    def only(self, chosen: Integers) -> "Components":
        """Some of the components."""
        rows = {each.name: getattr(self, each.name)[chosen] for each in fields(self) if each.name != "tables"}
        return Components(tables=tuple(table[chosen] for table in self.tables), **rows)

    def with_own(self, share: float) -> "Components":
        """The components with a larger residual: by this share of the amplitude of their axes."""
        return replace(self, residual=self.residual + share**2 * self.main.sum(axis=1))

    def covariance(self, space: Space, left: Integers, right: Integers) -> Floats:
        """The prior covariance of points `left` and `right`: (components, *shape of the two together)."""
        covariance = np.empty((self.count, *np.broadcast_shapes(left.shape, right.shape)))
        own = np.arange(space.size)
        for chosen, stands_for in ((~self.by_class, own), (self.by_class, space.head)):
            part = self.only(np.flatnonzero(chosen))
            covariance[chosen] = part._covariance(space, stands_for[left], stands_for[right])
        return covariance

    def _covariance(self, space: Space, left: Integers, right: Integers) -> Floats:
        """The covariance where every point stands for itself."""
        several = (slice(None), *[None] * np.broadcast(left, right).ndim)
        first = np.zeros((self.count, *np.broadcast_shapes(left.shape, right.shape)))
        squares = np.zeros_like(first)
        for place, table in enumerate(self.tables):
            level = space.levels[:, place]
            term = self.main[:, place][several] * table[:, level[left], level[right]]
            first += term
            squares += term**2
        total = np.maximum(self.main.sum(axis=1), 1e-12)[several]
        pairs = (first**2 - squares) / 2
        by_axes: Floats = first + self.together[several] * pairs / total + self.residual[several] * (left == right)
        return LEVEL_VARIANCE + by_axes


def draw_components(space: Space, generator: np.random.Generator, *, informed: bool) -> Components:
    """Components drawn from what is known of engines before any trial; `informed` when there is a prediction."""
    count, axes = COMPONENTS, len(space.axes)
    informed_prior = (np.arange(count) % 2 == 0) & informed
    amplitude = np.where(
        informed_prior, _lognormal(generator, 0.06, 0.4, count), _lognormal(generator, 0.25, 1.0, count)
    )
    noise = np.where(informed_prior, _lognormal(generator, 0.006, 0.7, count), _lognormal(generator, 0.01, 1.0, count))
    relevance = _lognormal(generator, 1.0, 0.9, (count, axes)) ** 2
    share = relevance / relevance.sum(axis=1, keepdims=True) if axes else relevance
    return Components(
        tables=tuple(_table(axis, informed_prior, generator) for axis in space.axes),
        main=amplitude[:, None] ** 2 * share,
        together=_lognormal(generator, 0.4, 1.0, count),
        residual=_lognormal(generator, 0.005, 0.8, count) ** 2,
        noise=noise**2,
        prediction_slope=np.where(
            informed_prior, generator.normal(1.0, 0.25, count), generator.normal(0.2, 0.7, count)
        ),
        trend_slope=generator.normal(1.0, 0.7, count),
        by_class=np.arange(count) >= count - count // ONE_CLASS_IN,
        prior_weights=np.where(informed_prior, INFORMED_WEIGHT, 1 - INFORMED_WEIGHT) / (count / 2)
        if informed
        else np.full(count, 1 / count),
    )


def _table(axis: Axis, informed_prior: NDArray[np.bool_], generator: np.random.Generator) -> Floats:
    """(components, values, values): near values are alike, or lie on a curve; values without order are unlike."""
    count, same = len(informed_prior), np.eye(len(axis.values))
    if axis.positions is None:
        return np.broadcast_to(same, (count, *same.shape)).copy()
    place = np.array(axis.positions)
    distance = (place[:, None] - place[None, :]) / _lognormal(generator, 0.6, 0.6, count)[:, None, None]
    alike = (1 - ROUGHNESS) * np.exp(-0.5 * distance**2) + ROUGHNESS * same
    # An absent value is placed beyond 1: it lies on no curve and differs by itself.
    present = place <= 1
    slope = np.where(present, 2 * place - 1, 0.0)
    bend = _lognormal(generator, 0.5, 0.5, count)[:, None, None] * np.where(present, slope**2 - 0.4, 0.0)
    rough = _lognormal(generator, 0.25, 0.5, count)[:, None, None]
    curve = np.outer(slope, slope) + bend * np.swapaxes(bend, 1, 2) + rough**2 * same + np.diag(~present)
    curve *= len(place) / np.trace(curve, axis1=1, axis2=2)[:, None, None]
    curved = informed_prior & (generator.random(count) < CURVED)
    return np.where(curved[:, None, None], curve, alike)


def _lognormal(generator: np.random.Generator, median: float, spread: float, size: object) -> Floats:
    """Values whose logarithm is normal around log(median) with this standard deviation."""
    drawn: Floats = median * np.exp(generator.normal(0.0, spread, size))  # type: ignore[call-overload]
    return drawn


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
            informed = self.whitened[several][:, :, points]
            own = self.components.only(several).covariance(self.space, points[:, None], points)
            left = own - np.swapaxes(informed, 1, 2) @ informed
            spread = np.trace(left, axis1=1, axis2=2)[:, None, None] / len(points)
            roots = np.linalg.cholesky(left + JITTER * (1 + spread) * np.eye(len(points)))
            for one, root in zip(several, roots, strict=True):
                rows = np.flatnonzero(component == one)
                drawn[rows] += generator.normal(size=(len(rows), len(points))) @ root.T
        return drawn, np.sqrt(self.components.noise[component])

    def chance_over(self, choices: Sequence[int], margin: float) -> Floats:
        """For each point, the probability that it exceeds the best of `choices` by more than `margin` (log)."""
        best = self.mean[:, list(choices)].max(axis=1, keepdims=True)
        chance: Floats = self.weights @ ndtr((self.mean - best - margin) / self.deviation)
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
    launched, every = np.array([*points, *pending], dtype=np.int64), np.arange(space.size)
    measured, launches = tuple(sorted(set(points))), len(points)
    noise = components.noise[:, None, None] * np.eye(len(launched))
    factor = np.linalg.cholesky(components.covariance(space, launched[:, None], launched) + noise)
    corner = factor[:, :launches, :launches]
    level = float(np.mean(values)) if launches else 0.0
    surprise = np.asarray(values) - level - prior[:, list(points)]
    scaled = np.linalg.solve(corner, surprise[:, :, None])[:, :, 0]
    evidence = -0.5 * (scaled**2).sum(axis=1) - np.log(np.diagonal(corner, axis1=1, axis2=2)).sum(axis=1)
    weights = components.prior_weights * np.exp(evidence - evidence.max())
    likely = np.flatnonzero(weights >= PRUNED_BELOW * weights.max())
    components, weights = components.only(likely), weights[likely] / weights[likely].sum()
    prior, factor, scaled = prior[likely], factor[likely], scaled[likely]
    between = components.covariance(space, launched[:, None], every)
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


@dataclass(frozen=True, kw_only=True)
class PosteriorSamples:
    """Posterior samples, all equally likely.

    `values` (samples, points) are log objective, best high, −inf where a launch fails; `tolerance` (samples,) is how
    far behind the best is as good.
    """

    values: Floats
    tolerance: Floats

    @cached_property
    def hits(self) -> Region:
        """(samples, points): the point works and is as good as the best of its sample."""
        best = self.values.max(axis=1, keepdims=True)
        hits: Region = np.isfinite(self.values) & (self.values >= best - self.tolerance[:, None])
        return hits

    def chance_to_hit(self, tried: Sequence[int]) -> Floats:
        """For each point, the probability that it is as good as the best and that none of `tried` is."""
        missed = self._missed(tried)
        chance: Floats = (missed[:, None] & self.hits).mean(axis=0)
        return chance

    def chance_after(self, tried: Sequence[int], open_: Region, points: Region) -> Floats:
        """For each of `points`, the probability that not it but the launch after it is the first as good as the best.

        The launch after it is the best of `open_` once its result is known. All others get 0.
        """
        missed = self._missed(tried)
        candidates = self.hits[:, open_ & self.hits.any(axis=0)].astype(np.float32)
        after = np.zeros(self.values.shape[1])
        for point in np.flatnonzero(points).tolist() if candidates.size else ():
            still = (missed & ~self.hits[:, point]).astype(np.float32)
            # A row for each result: the samples that agree with it.
            left = self._grades(point)[None, :] == np.arange(-1, GRADES)[:, None]
            after[point] = ((left * still) @ candidates).max(axis=1).sum() / len(missed)
        return after

    def _missed(self, tried: Sequence[int]) -> Region:
        """(samples,): none of `tried` is as good as the best."""
        hit: Region = np.logical_or.reduce(self.hits[:, list(tried)], axis=1)
        return ~hit

    def _grades(self, point: int) -> Integers:
        """(samples,): which of as many equally likely results a launch of the point has; −1 where it fails."""
        column = self.values[:, point]
        works = np.flatnonzero(np.isfinite(column))
        grades = np.full(len(column), -1, dtype=np.int64)
        grades[works[np.argsort(column[works], kind="stable")]] = np.arange(len(works)) * GRADES // max(1, len(works))
        return grades
