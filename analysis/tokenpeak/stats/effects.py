"""What each axis does to the objective, and which pairs of axes work together, from whatever trials there are.

Least squares on log objective, a launch being the unit. A main effect compares a value of an axis with the mean of
its values, other axes being equal; an interaction is what a pair of values does beyond their main effects. What the
trials cannot tell apart is not estimable, and stays so. Intervals rest on the residuals, which hold noise and whatever
the model leaves out.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tokenpeak.stats.intervals import CONFIDENCE, t_critical

Floats = NDArray[np.float64]
TOLERANCE = 1e-8


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One value of an axis, or one pair of values of two axes.

    `ratio` is the objective with it over the mean of its axis (or over what main effects say); None when it is not
    estimable. Bounds are None when no launches are left to tell the spread.
    """

    axes: tuple[str, ...]
    values: tuple[str, ...]
    launches: int
    ratio: float | None
    low: float | None
    high: float | None

    @property
    def estimable(self) -> bool:
        """The trials can tell it."""
        return self.ratio is not None


@dataclass(frozen=True, kw_only=True)
class Importance:
    """How much an axis, or a pair beyond its main effects, matters.

    `spread` is the greatest over the least of its estimable effects; `p_value` is of the hypothesis that it does
    nothing (F test); None when that cannot be told.
    """

    axes: tuple[str, ...]
    spread: float | None
    p_value: float | None


@dataclass(frozen=True, kw_only=True)
class Effects:
    """All effects of a set of trials, and how much of the variance of log objective main effects explain."""

    main: tuple[Effect, ...]
    pairs: tuple[Effect, ...]
    importance: tuple[Importance, ...]
    explained: float | None
    launches: int


def effects(
    trials: Sequence[tuple[Mapping[str, str], float]], *, confidence: float = CONFIDENCE, interactions: bool = True
) -> Effects:
    """The effects of the axes in `trials`: (axis → value, objective) for each launch; objectives are positive."""
    names = sorted({axis for choices, _ in trials for axis in choices})
    axes = {name: sorted({choices[name] for choices, _ in trials if name in choices}, key=_order) for name in names}
    axes = {name: values for name, values in axes.items() if len(values) > 1}
    usable = [(choices, value) for choices, value in trials if axes.keys() <= choices.keys()]
    response = np.log(np.array([value for _, value in usable], dtype=np.float64))
    codes = {name: _code([choices[name] for choices, _ in usable], values) for name, values in axes.items()}
    blocks: dict[tuple[str, ...], Floats] = {(name,): codes[name] for name in axes}
    base = _Fit(blocks, response, confidence)
    main = [effect for name, values in axes.items() for effect in base.main_effects(name, values, usable)]
    importance = [
        Importance(axes=(name,), spread=_spread(main, (name,)), p_value=base.p_value((name,))) for name in axes
    ]
    pairs: list[Effect] = []
    for first, second in itertools.combinations(axes, 2) if interactions else ():
        key = (first, second)
        fit = _Fit({**blocks, key: _product(codes[first], codes[second])}, response, confidence)
        pairs += fit.pair_effects(key, (axes[first], axes[second]), usable)
        importance.append(Importance(axes=key, spread=_spread(pairs, key), p_value=fit.p_value(key)))
    return Effects(
        main=tuple(main),
        pairs=tuple(pairs),
        importance=tuple(importance),
        explained=base.explained(),
        launches=len(usable),
    )


class _Fit:
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
        # What can be told: contrasts that this projection leaves as they are.
        self._told = self._inverse @ (self._design.T @ self._design)
        self._residual = float(((response - self._design @ self._estimates) ** 2).sum())
        self._freedom = n - int(np.linalg.matrix_rank(self._design)) if n else 0

    def explained(self) -> float | None:
        """The share of the response's variance that the blocks explain."""
        total = float(((self._response - self._response.mean()) ** 2).sum()) if len(self._response) else 0.0
        return 1 - self._residual / total if total > 0 else None

    def p_value(self, key: tuple[str, ...]) -> float | None:
        """Of the hypothesis that the block does nothing beyond the others."""
        without = _Fit({other: block for other, block in self._blocks.items() if other != key}, self._response, 0.95)
        gained = without._freedom - self._freedom
        if gained <= 0 or self._freedom <= 0 or self._residual <= 0:
            return None
        ratio = ((without._residual - self._residual) / gained) / (self._residual / self._freedom)
        return float(stats.f.sf(max(ratio, 0.0), gained, self._freedom))

    def main_effects(
        self, name: str, values: Sequence[str], usable: Sequence[tuple[Mapping[str, str], float]]
    ) -> list[Effect]:
        """The effect of each of an axis's values."""
        coding = _coding(len(values))
        return [
            self._effect(
                (name,),
                (value,),
                coding[index],
                sum(choices[name] == value for choices, _ in usable),
            )
            for index, value in enumerate(values)
        ]

    def pair_effects(
        self,
        key: tuple[str, str],
        values: tuple[Sequence[str], Sequence[str]],
        usable: Sequence[tuple[Mapping[str, str], float]],
    ) -> list[Effect]:
        """The effect of each pair of values beyond the main effects."""
        first, second = (_coding(len(side)) for side in values)
        return [
            self._effect(
                key,
                (one, other),
                np.kron(first[place], second[index]),
                sum(choices[key[0]] == one and choices[key[1]] == other for choices, _ in usable),
            )
            for place, one in enumerate(values[0])
            for index, other in enumerate(values[1])
        ]

    def _effect(self, axes: tuple[str, ...], values: tuple[str, ...], part: Floats, launches: int) -> Effect:
        contrast = np.zeros(self._design.shape[1])
        contrast[self._places[axes]] = part
        if not np.allclose(contrast @ self._told, contrast, atol=1e-6):
            return Effect(axes=axes, values=values, launches=launches, ratio=None, low=None, high=None)
        estimate = float(contrast @ self._estimates)
        if self._freedom <= 0:
            return Effect(axes=axes, values=values, launches=launches, ratio=math.exp(estimate), low=None, high=None)
        spread = self._residual / self._freedom * float(contrast @ self._inverse @ contrast)
        half = t_critical(self._freedom, self._confidence) * math.sqrt(max(spread, 0.0))
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


def _code(column: Sequence[str], values: Sequence[str]) -> Floats:
    coding = _coding(len(values))
    return coding[[values.index(value) for value in column]] if column else np.zeros((0, len(values) - 1))


def _product(first: Floats, second: Floats) -> Floats:
    """Row-wise products of all columns, as np.kron orders them."""
    product: Floats = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    return product


def _spread(found: Sequence[Effect], axes: tuple[str, ...]) -> float | None:
    ratios = [effect.ratio for effect in found if effect.axes == axes and effect.ratio is not None]
    return max(ratios) / min(ratios) if len(ratios) > 1 else None


def _order(value: str) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        return (0, float(value), value)
    except ValueError:
        return (1, 0.0, value)
