"""The front holds what nothing beats."""

import numpy as np
import pytest

from tokenpeak.metrics import Direction
from tokenpeak.ranking.objective import pareto_front, trade_offs


def test_front_of_speed_and_energy() -> None:
    """Fast and frugal configs stay, what is slower and hungrier goes, equals stay together."""
    values = {"fast": (100.0, 3.0), "frugal": (50.0, 1.0), "poor": (50.0, 2.0), "twin": (100.0, 3.0)}

    assert ("fast", "frugal", "twin") == pareto_front(values, ("higher", "lower"))


def test_front_is_what_comparing_all_with_all_finds() -> None:
    """Over three objectives with many equal values, it is the set of the definition."""
    directions: tuple[Direction, ...] = ("higher", "lower", "higher")
    signs = np.array([1, -1, 1])
    points = np.random.default_rng(5).integers(0, 6, (300, 3)).astype(float)
    signed = points * signs
    beaten = [any((other >= own).all() and (other > own).any() for other in signed) for own in signed]

    assert [index for index, lost in enumerate(beaten) if not lost] == list(
        pareto_front({index: tuple(point) for index, point in enumerate(points)}, directions)
    )


def test_trade_offs_are_of_geometric_means_and_leave_out_what_was_not_measured() -> None:
    """A config whose launch lacks an objective cannot be compared in it."""
    launches = {"fast": [(400.0, 2.0), (100.0, 2.0)], "frugal": [(90.0, 1.0)], "unmeasured": [(900.0, None)]}
    found = trade_offs(launches, ("higher", "lower"))

    assert {"fast", "frugal"} == set(found)
    assert pytest.approx((200.0, 2.0)) == found["fast"]
