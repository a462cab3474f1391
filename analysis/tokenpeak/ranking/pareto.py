"""Pareto front over several objectives: the configs that no other beats in all of them."""

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from tokenpeak.metrics import Direction

Key = TypeVar("Key", bound=Hashable)


def pareto_front(values: Mapping[Key, Sequence[float]], directions: Sequence[Direction]) -> tuple[Key, ...]:
    """The keys of which no other is at least as good in every objective and better in one.

    Equal entries are all kept; order is that of `values`.
    """
    signs = [-1.0 if direction == "lower" else 1.0 for direction in directions]
    points = {key: tuple(sign * value for sign, value in zip(signs, row, strict=True)) for key, row in values.items()}
    front: list[tuple[float, ...]] = []
    # Whatever beats a point comes before it, and is on the front or beaten by something that is.
    for point in sorted(set(points.values()), reverse=True):
        if not any(all(theirs >= ours for theirs, ours in zip(other, point, strict=True)) for other in front):
            front.append(point)
    kept = set(front)
    return tuple(key for key, point in points.items() if point in kept)


def trade_offs(
    launches: Mapping[str, Sequence[Sequence[float | None]]], directions: Sequence[Direction]
) -> dict[str, tuple[float, ...]]:
    """The configs on the front and their geometric means, from each launch's value of every objective.

    A config of which a launch lacks one is left out. Means decide: the front has no confidence.
    """
    means: dict[str, tuple[float, ...]] = {}
    for config, rows in launches.items():
        logs = [[math.log(value) for value in row if value] for row in rows]
        if logs and all(len(row) == len(directions) for row in logs):
            means[config] = tuple(math.exp(fmean(column)) for column in zip(*logs, strict=True))
    return {config: means[config] for config in pareto_front(means, directions)}
