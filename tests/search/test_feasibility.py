"""Failures teach about their neighbours."""

import numpy as np
from landscape_factory import plan_of

from tokenpeak.search.feasibility import Rules, draw_failing, draw_rules
from tokenpeak.search.space import Floats, space_of


def chance_to_work(rules: Rules, worked: list[int], failed: list[int]) -> Floats:
    """For each point, the share of drawn regions in which it works."""
    chance: Floats = 1 - draw_failing(rules, worked, failed, 4000, np.random.default_rng(1)).mean(axis=0)
    return chance


def test_failures_of_high_values_warn_of_higher_ones() -> None:
    """After three failures at 128 and 256 sequences, 256 is distrusted and 16 is not."""
    space = space_of(plan_of("A100"))
    rules = draw_rules(space, np.random.default_rng(0))
    place = [axis.name for axis in space.axes].index("max_num_seqs")
    seats = np.array([int(space.axes[place].values[level]) for level in space.levels[:, place]])
    failed = [int(point) for point in np.flatnonzero(seats >= 128)[[0, 5, 9]]]
    worked = [int(point) for point in np.flatnonzero(seats <= 32)[[0, 4, 8]]]
    chance = chance_to_work(rules, worked, failed)

    assert chance[seats == 256].mean() < 0.35
    assert chance[seats == 16].mean() > 0.9


def test_without_failures_all_is_expected_to_work() -> None:
    """Before any failure every config has a fair chance, and successes raise it."""
    space = space_of(plan_of("A100"))
    rules = draw_rules(space, np.random.default_rng(0))
    before, after = chance_to_work(rules, [], []), chance_to_work(rules, list(range(0, 40, 5)), [])

    assert before.min() > 0.5
    assert after.mean() > before.mean()


def test_what_was_seen_holds_in_every_draw() -> None:
    """What worked fails in no drawn region, and what failed in all of them."""
    space = space_of(plan_of("A100"))
    rules = draw_rules(space, np.random.default_rng(0))
    chance = chance_to_work(rules, [0, 9], [3, 38])

    assert [1.0, 1.0, 0.0, 0.0] == chance[[0, 9, 3, 38]].tolist()
