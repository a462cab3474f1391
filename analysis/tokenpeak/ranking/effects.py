"""Main effects of axes and interactions of their pairs on the objective, from whatever trials there are.

Least squares on log objective. A main effect compares a value of an axis with the mean of its values, other axes being
equal; an interaction is what a pair of values does beyond their main effects. What the trials cannot separate is not
estimable, and stays so: a value that always came with another axis's is compared with none, and those that remain are
compared with each other. Intervals rest on the residuals, which hold noise and whatever the model leaves out. Launches
of one config share what it leaves out, so each config counts once, by the mean of its launches; only where effects are
as many as configs, so that nothing is left out, does each launch count.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from tokenpeak.ranking.intervals import CONFIDENCE, t_critical

Floats = NDArray[np.float64]
TOLERANCE = 1e-8


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One value of an axis, or one pair of values of two axes.

    `ratio` is the objective with it over the mean of `among` (or over what main effects say); None when it is not
    estimable. Bounds are None when no launches are left to estimate the spread.
    """

    axes: tuple[str, ...]
    values: tuple[str, ...]
    launches: int
    ratio: float | None
    low: float | None
    high: float | None
    among: tuple[str, ...] = ()
    """Of an axis: the values with whose mean it is compared, its own included; empty where there are none."""

    @property
    def estimable(self) -> bool:
        """The trials determine it."""
        return self.ratio is not None


@dataclass(frozen=True, kw_only=True)
class Importance:
    """How much an axis, or a pair beyond its main effects, matters.

    `spread` is the greatest over the least of effects that are compared with each other; `p_value` is of the
    hypothesis that it does nothing (F test); None when that cannot be tested.
    """

    axes: tuple[str, ...]
    spread: float | None
    p_value: float | None


@dataclass(frozen=True, kw_only=True)
class Effects:
    """All effects of a set of trials; `importance` is of the axes first, then of their pairs."""

    main: tuple[Effect, ...]
    pairs: tuple[Effect, ...]
    importance: tuple[Importance, ...]


def effects(trials: Sequence[tuple[Mapping[str, str], float]], *, confidence: float = CONFIDENCE) -> Effects:
    """The effects of the axes in `trials`: (axis → value, objective) for each launch; objectives are positive.

    An axis that some configs do not have does nothing in those; a config without any is outside the grid, and left out.
    """
    usable = [(choices, math.log(value)) for choices, value in trials if choices]
    names = sorted({axis for choices, _ in usable for axis in choices})
    axes = {name: sorted({choices[name] for choices, _ in usable if name in choices}, key=_order) for name in names}
    axes = {name: values for name, values in axes.items() if len(values) > 1}
    base = _least_squares(usable, axes, None, confidence)
    main = [
        base.main_effect(name, values, value, sum(choices.get(name) == value for choices, _ in usable))
        for name, values in axes.items()
        for value in values
    ]
    importance = [
        Importance(axes=(name,), spread=_spread(main, (name,)), p_value=base.p_value((name,))) for name in axes
    ]
    pairs: list[Effect] = []
    for key in itertools.combinations(axes, 2):
        model = _least_squares(usable, axes, key, confidence)
        first, second = key
        pairs += [
            model.effect(
                key,
                (one, other),
                np.kron(part, counterpart),
                sum(choices.get(first) == one and choices.get(second) == other for choices, _ in usable),
            )
            for one, part in zip(axes[first], _coding(len(axes[first])), strict=True)
            for other, counterpart in zip(axes[second], _coding(len(axes[second])), strict=True)
        ]
        importance.append(Importance(axes=key, spread=_spread(pairs, key), p_value=model.p_value(key)))
    return Effects(main=tuple(main), pairs=tuple(pairs), importance=tuple(importance))


def _least_squares(
    launches: Sequence[tuple[Mapping[str, str], float]],
    axes: Mapping[str, Sequence[str]],
    pair: tuple[str, str] | None,
    confidence: float,
) -> "_LeastSquares":
    """The fit of all axes, and of a pair of them, on the configs' means, or on launches where those are too few."""
    together: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for choices, response in launches:
        together.setdefault(tuple(sorted(choices.items())), []).append(response)
    means = [(dict(choices), fmean(responses)) for choices, responses in together.items()]

    def on(rows: Sequence[tuple[Mapping[str, str], float]]) -> _LeastSquares:
        blocks: dict[tuple[str, ...], Floats] = {
            (name,): _code([choices.get(name) for choices, _ in rows], values) for name, values in axes.items()
        }
        if pair is not None:
            blocks[pair] = _product(*(blocks[name,] for name in pair))
        return _LeastSquares(blocks, np.array([response for _, response in rows], dtype=np.float64), confidence)

    model = on(means)
    return model if model.freedom > 0 else on(launches)


class _LeastSquares:
    """Least squares of a response on blocks of columns and a constant; rank may be short."""

    def __init__(self, blocks: Mapping[tuple[str, ...], Floats], response: Floats, confidence: float) -> None:
        self._response = response
        self._blocks = blocks
        self._confidence = confidence
        n = len(response)
        self._places: dict[tuple[str, ...], slice] = {}
        columns = [np.ones((n, 1))]
        at = 1
        for key, block in blocks.items():
            self._places[key] = slice(at, at + block.shape[1])
            at += block.shape[1]
            columns.append(block)
        self._design = np.hstack(columns)
        self._inverse = np.linalg.pinv(self._design.T @ self._design, rcond=TOLERANCE, hermitian=True)
        self._estimates = self._inverse @ self._design.T @ response
        # What is estimable: contrasts that this projection leaves as they are.
        self._estimable = self._inverse @ (self._design.T @ self._design)
        self._residual = float(((response - self._design @ self._estimates) ** 2).sum())
        self.freedom = n - int(np.linalg.matrix_rank(self._design)) if n else 0

    def p_value(self, key: tuple[str, ...]) -> float | None:
        """Of the hypothesis that the block does nothing beyond the others."""
        without = _LeastSquares(
            {other: block for other, block in self._blocks.items() if other != key}, self._response, 0.95
        )
        gained = without.freedom - self.freedom
        if gained <= 0 or self.freedom <= 0 or self._residual <= 0:
            return None
        ratio = ((without._residual - self._residual) / gained) / (self._residual / self.freedom)
        from scipy.special import fdtrc  # half a second of processor time, which only an F test spends

        return float(fdtrc(gained, self.freedom, max(ratio, 0.0)))

    def main_effect(self, name: str, values: Sequence[str], value: str, launches: int) -> Effect:
        """A value of an axis against the mean of those that can be compared with it."""
        coding = _coding(len(values))
        own = coding[values.index(value)]
        compared = [at for at, other in enumerate(coding) if self._is_estimable(self._contrast((name,), own - other))]
        if len(compared) < 2:
            return Effect(axes=(name,), values=(value,), launches=launches, ratio=None, low=None, high=None)
        effect = self.effect((name,), (value,), own - coding[compared].mean(axis=0), launches)
        return replace(effect, among=tuple(values[at] for at in compared))

    def _contrast(self, axes: tuple[str, ...], part: Floats) -> Floats:
        contrast = np.zeros(self._design.shape[1])
        contrast[self._places[axes]] = part
        return contrast

    def _is_estimable(self, contrast: Floats) -> bool:
        return np.allclose(contrast @ self._estimable, contrast, atol=1e-6)

    def effect(self, axes: tuple[str, ...], values: tuple[str, ...], part: Floats, launches: int) -> Effect:
        """One effect: the contrast `part` of the block's columns."""
        contrast = self._contrast(axes, part)
        if not self._is_estimable(contrast):
            return Effect(axes=axes, values=values, launches=launches, ratio=None, low=None, high=None)
        estimate = float(contrast @ self._estimates)
        if self.freedom <= 0:
            return Effect(axes=axes, values=values, launches=launches, ratio=math.exp(estimate), low=None, high=None)
        spread = self._residual / self.freedom * float(contrast @ self._inverse @ contrast)
        half = t_critical(self.freedom, self._confidence) * math.sqrt(max(spread, 0.0))
        return Effect(
            axes=axes,
            values=values,
            launches=launches,
            ratio=math.exp(estimate),
            low=math.exp(estimate - half),
            high=math.exp(estimate + half),
        )


def _coding(values: int) -> Floats:
    """(values, values − 1): each value as its difference from the mean of all; rows sum to zero."""
    return np.vstack([np.eye(values - 1), -np.ones((1, values - 1))])


def _code(column: Sequence[str | None], values: Sequence[str]) -> Floats:
    """A row per config; zeros where it does not have the axis."""
    coding = np.vstack([_coding(len(values)), np.zeros((1, len(values) - 1))])
    return coding[[len(values) if value is None else values.index(value) for value in column]]


def _product(first: Floats, second: Floats) -> Floats:
    """Row-wise products of all columns, as np.kron orders them."""
    product: Floats = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    return product


def _spread(compared: Sequence[Effect], axes: tuple[str, ...]) -> float | None:
    together: dict[tuple[str, ...], list[float]] = {}
    for effect in compared:
        if effect.axes == axes and effect.ratio is not None:
            together.setdefault(effect.among, []).append(effect.ratio)
    return max((max(ratios) / min(ratios) for ratios in together.values() if len(ratios) > 1), default=None)


def _order(value: str) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        return (0, float(value), value)
    except ValueError:
        return (1, 0.0, value)
