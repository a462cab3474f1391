"""Feasibility: what failures say of untried points, by rules weighed by how well they explain the failures.

A rule is a region of the space in which a launch fails: one side of a plane through several axes, values of one axis, a
conjunction of two, or what two such regions cover. Mostly it is a plane: what fails is mostly memory, to which axes add
up. A launch outside of every region may still fail by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.search.space import Axis, Floats, Space

RULES = 2000
NO_RULE = 0.5
"""Prior probability that no region of the space fails."""
TWO_CAUSES = 0.25
"""Share of the rules to which another is joined: launches of one space may fail for two reasons."""
BY_CHANCE = 0.02
"""Chance that a launch fails without a rule, and that one succeeds although a rule forbids it."""

Region = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Regions (rules, points) that may fail, all equally likely at first; the first is empty, with its own weight."""

    regions: Region
    prior: Floats


def draw_rules(space: Space, generator: np.random.Generator) -> Rules:
    """Rules that the axes could give rise to, drawn from the seed."""
    regions = np.zeros((RULES, space.size), dtype=bool)
    if space.axes:
        coordinates = np.column_stack(
            [_coordinates(axis)[space.levels[:, place]] for place, axis in enumerate(space.axes)]
        )
        for rule in range(1, RULES):
            kind = generator.random()
            if kind < 0.1:
                regions[rule] = _values_of_one(space, generator)
            elif kind < 0.3:
                regions[rule] = _values_of_one(space, generator) & _values_of_one(space, generator)
            else:
                regions[rule] = _side_of_plane(coordinates, generator)
            if generator.random() < TWO_CAUSES:
                regions[rule] |= regions[generator.integers(rule)]
    prior = np.full(RULES, (1 - NO_RULE) / (RULES - 1))
    prior[0] = NO_RULE
    # A rule that forbids everything explains nothing.
    prior[regions.mean(axis=1) > 0.9] = 0.0
    return Rules(regions=regions, prior=prior / prior.sum())


def chance_to_work(rules: Rules, worked: Sequence[int], failed: Sequence[int]) -> Floats:
    """For each point, the probability that a launch succeeds."""
    fails: Floats = _weights(rules, worked, failed) @ np.where(rules.regions, 1 - BY_CHANCE, BY_CHANCE)
    return 1 - fails


def draw_failing(
    rules: Rules, worked: Sequence[int], failed: Sequence[int], count: int, generator: np.random.Generator
) -> Region:
    """(count, points): where launches fail, in regions as likely as they explain what worked and failed.

    What worked works and what failed fails in all of them.
    """
    # As many from each part of what is likely, in no order.
    lots = generator.permutation((np.arange(count) + 0.5) / count)
    drawn = np.searchsorted(np.cumsum(_weights(rules, worked, failed)), lots)
    fails: Region = rules.regions[np.minimum(drawn, RULES - 1)]
    fails[:, list(worked)], fails[:, list(failed)] = False, True
    return fails


def _weights(rules: Rules, worked: Sequence[int], failed: Sequence[int]) -> Floats:
    """(rules,): how likely each is after what worked and failed; they sum to 1."""
    weights = rules.prior.copy()
    forbids_worked = rules.regions[:, list(worked)].sum(axis=1)
    forbids_failed = rules.regions[:, list(failed)].sum(axis=1)
    weights *= BY_CHANCE**forbids_worked * (1 - BY_CHANCE) ** (len(worked) - forbids_worked)
    weights *= (1 - BY_CHANCE) ** forbids_failed * BY_CHANCE ** (len(failed) - forbids_failed)
    likely: Floats = weights / weights.sum()
    return likely


def _coordinates(axis: Axis) -> Floats:
    if axis.positions is not None:
        return np.array(axis.positions)
    return np.linspace(0.0, 1.0, len(axis.values)) if len(axis.values) > 1 else np.zeros(1)


def _values_of_one(space: Space, generator: np.random.Generator) -> Region:
    """Points whose value on an axis is one of the upper, of the lower, or a single one."""
    place = int(generator.integers(len(space.axes)))
    axis = space.axes[place]
    column = space.levels[:, place]
    if axis.positions is None:
        single: Region = column == generator.integers(len(axis.values))
        return single
    position = np.array(axis.positions)
    threshold = position[int(generator.integers(len(axis.values)))]
    above = position >= threshold if generator.random() < 0.65 else position <= threshold
    chosen: Region = above[column]
    return chosen


def _side_of_plane(coordinates: Floats, generator: np.random.Generator) -> Region:
    """Points beyond a plane through most axes, by far mostly where they are high, which takes more memory."""
    axes = coordinates.shape[1]
    chosen = generator.random(axes) < 0.8
    slope = np.abs(generator.normal(size=axes)) * np.where(generator.random(axes) < 0.9, 1, -1) * chosen
    height = coordinates @ slope
    # As np.quantile does, which would be two thirds of the time that a rule takes.
    place = generator.uniform(0.5, 0.98) * (len(height) - 1)
    below = int(place)
    low, high = np.sort(height)[[below, min(below + 1, len(height) - 1)]]
    beyond: Region = height > low + (place - below) * (high - low)
    return beyond
