"""The members of a belief: Gaussian processes over log objective, each with settings of its own.

How much each axis matters, how far its influence reaches, how strongly axes interact, how much a config differs from
what its axes say, how noisy launches are, and how far the predictor is trusted are drawn once, from the seed. Half of
the members trust the predictor and count for more at first; the other half are as many so that enough is still believed
once it has lost. Who trusts the predictor also holds that it leaves out little, mostly a slope and a bend along an
axis, and that launches are much alike; the others leave all that open. Some take the plan's word that configs of a
class do not differ.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from tokenpeak.search.space import Axis, Floats, Integers, Space

MEMBERS = 512
ONE_CLASS_IN = 8
"""One member of so many takes the plan's word that configs of a class do not differ."""
TRUST = 0.7
"""Belief, before any trial, that the predictor is right but for its scale and for what it does not know."""
CURVED = 0.7
"""So often a member that trusts the predictor thinks of an ordered axis as a slope and a bend."""
ROUGHNESS = 0.15
"""The share of an ordered axis's variance that likeness of near values does not explain."""
LEVEL_VARIANCE = 4.0
"""Variance of the unknown overall level, in log units: anything within e^±4 of the first measurement."""


@dataclass(frozen=True, kw_only=True)
class Members:
    """The members' settings, one row each, in units of log objective."""

    tables: tuple[Floats, ...]
    """For each axis (members, values, values): how far two of its values go together; the diagonal is 1 on average."""
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
    by_class: NDArray[np.bool_]
    """(members,): holds that configs of a class do not differ."""
    prior: Floats
    """(members,): what each counts before anything is measured; of all members, they sum to 1."""

    @property
    def count(self) -> int:
        """The number of members."""
        return len(self.prior)

    def only(self, chosen: Integers) -> "Members":
        """Some of the members."""
        rows = {each.name: getattr(self, each.name)[chosen] for each in fields(self) if each.name != "tables"}
        return Members(tables=tuple(table[chosen] for table in self.tables), **rows)

    def with_own(self, share: float) -> "Members":
        """The members, each holding that configs differ by themselves by so much more of its axes' amplitude."""
        return replace(self, residual=self.residual + share**2 * self.main.sum(axis=1))

    def covariance(self, space: Space, left: Integers, right: Integers) -> Floats:
        """How measuring points `left` tells of points `right`: (members, *shape of the two together)."""
        found = np.empty((self.count, *np.broadcast_shapes(left.shape, right.shape)))
        own = np.arange(space.size)
        for chosen, stands_for in ((~self.by_class, own), (self.by_class, space.head)):
            part = self.only(np.flatnonzero(chosen))
            found[chosen] = part._covariance(space, stands_for[left], stands_for[right])
        return found

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
        found: Floats = first + self.together[several] * pairs / total + self.residual[several] * (left == right)
        return LEVEL_VARIANCE + found


def draw_members(space: Space, generator: np.random.Generator, *, informed: bool) -> Members:
    """Members drawn from what is known of engines before any trial; `informed` when a predictor speaks."""
    count, axes = MEMBERS, len(space.axes)
    trusting = (np.arange(count) % 2 == 0) & informed
    amplitude = np.where(trusting, _lognormal(generator, 0.06, 0.4, count), _lognormal(generator, 0.25, 1.0, count))
    noise = np.where(trusting, _lognormal(generator, 0.006, 0.7, count), _lognormal(generator, 0.01, 1.0, count))
    relevance = _lognormal(generator, 1.0, 0.9, (count, axes)) ** 2
    share = relevance / relevance.sum(axis=1, keepdims=True) if axes else relevance
    return Members(
        tables=tuple(_table(axis, trusting, generator) for axis in space.axes),
        main=amplitude[:, None] ** 2 * share,
        together=_lognormal(generator, 0.4, 1.0, count),
        residual=_lognormal(generator, 0.005, 0.8, count) ** 2,
        noise=noise**2,
        trust=np.where(trusting, generator.normal(1.0, 0.25, count), generator.normal(0.2, 0.7, count)),
        pull=generator.normal(1.0, 0.7, count),
        by_class=np.arange(count) >= count - count // ONE_CLASS_IN,
        prior=np.where(trusting, TRUST, 1 - TRUST) / (count / 2) if informed else np.full(count, 1 / count),
    )


def _table(axis: Axis, trusting: NDArray[np.bool_], generator: np.random.Generator) -> Floats:
    """(members, values, values): near values are alike, or lie on a curve; values without order are unlike."""
    count, same = len(trusting), np.eye(len(axis.values))
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
    curved = trusting & (generator.random(count) < CURVED)
    return np.where(curved[:, None, None], curve, alike)


def _lognormal(generator: np.random.Generator, median: float, spread: float, size: object) -> Floats:
    """Values whose logarithm is normal around log(median) with this standard deviation."""
    drawn: Floats = median * np.exp(generator.normal(0.0, spread, size))  # type: ignore[call-overload]
    return drawn
