"""The search's model, on samples small enough to count by hand and on failures that teach about their neighbours."""

import numpy as np
from landscape_factory import plan_of

from tokenpeak.search.feasibility import chance_to_work, draw_failing, draw_rules
from tokenpeak.search.posterior import PosteriorSamples
from tokenpeak.search.space import space_of

FAILS = -np.inf


def samples(*values: tuple[float, ...]) -> PosteriorSamples:
    """PosteriorSamples with these values of their points, in which a tenth behind the best is as good."""
    return PosteriorSamples(values=np.array(values), tolerance=np.full(len(values), 0.1))


def test_a_launch_that_shows_where_the_best_is_leads_to_it() -> None:
    """The first point is never best, but its failure shows which of the other two is."""
    drawn = samples(*[(FAILS, 1.0, 0.0)] * 50, *[(0.0, 0.0, 1.0)] * 50)

    assert [0.0, 0.5, 0.5] == drawn.chance_to_hit([]).tolist()
    every = np.array([True, True, True])
    assert [1.0, 0.5, 0.5] == drawn.chance_after([], every, every).tolist()
    assert [1.0, 0.0, 0.0] == drawn.chance_after([], every, np.array([True, False, False])).tolist()


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
    assert chance[seats == 16].mean() > 0.85


def test_drawn_regions_fail_as_often_as_their_probability() -> None:
    """What worked fails in no drawn region and what failed in all; elsewhere as often as `chance_to_work` says."""
    space = space_of(plan_of("A100"))
    rules = draw_rules(space, np.random.default_rng(0))
    worked, failed = [0, 9], [3, 38]
    drawn = 1 - draw_failing(rules, worked, failed, 4000, np.random.default_rng(1)).mean(axis=0)
    others = np.delete(np.arange(space.size), worked + failed)

    assert [1.0, 1.0, 0.0, 0.0] == drawn[worked + failed].tolist()
    assert np.abs(drawn - chance_to_work(rules, worked, failed))[others].max() < 0.03
