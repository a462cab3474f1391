"""What is counted over posterior samples, on ones small enough to count by hand."""

import numpy as np

from tokenpeak.search.posterior import PosteriorSamples

FAILS = -np.inf


def samples(*values: tuple[float, ...]) -> PosteriorSamples:
    """PosteriorSamples with these values of their points, in which a tenth behind the best is as good."""
    return PosteriorSamples(values=np.array(values), tolerance=np.full(len(values), 0.1))


def test_hits_work_and_are_within_the_tolerance() -> None:
    """What fails is no hit, however good the rest; where all fails there is none."""
    found = samples((1.0, 0.95, 0.8), (FAILS, 0.5, 0.3), (FAILS, FAILS, FAILS))

    assert [[True, True, False], [False, True, False], [False, False, False]] == found.hits.tolist()


def test_a_hit_counts_only_where_none_before_it_was() -> None:
    """A point is worth what it adds to those that were tried."""
    found = samples((1.0, 1.0, 0.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))

    assert [0.5, 0.5, 0.25] == found.chance_to_hit([]).tolist()
    assert [0.0, 0.25, 0.25] == found.chance_to_hit([0]).tolist()


def test_a_launch_that_shows_where_the_best_is_leads_to_it() -> None:
    """The first point is never best, but its failure shows which of the other two is."""
    found = samples(*[(FAILS, 1.0, 0.0)] * 50, *[(0.0, 0.0, 1.0)] * 50)

    assert [0.0, 0.5, 0.5] == found.chance_to_hit([]).tolist()
    every = np.array([True, True, True])
    assert [1.0, 0.5, 0.5] == found.chance_after([], every, every).tolist()
    assert [1.0, 0.0, 0.0] == found.chance_after([], every, np.array([True, False, False])).tolist()
