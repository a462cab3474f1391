"""The front holds what nothing beats."""

from tokenpeak.stats.pareto import pareto_front


def test_front_of_speed_and_energy() -> None:
    """Fast and frugal configs stay, what is slower and hungrier goes, equals stay together."""
    values = {"fast": (100.0, 3.0), "frugal": (50.0, 1.0), "poor": (50.0, 2.0), "twin": (100.0, 3.0)}

    assert ("fast", "frugal", "twin") == pareto_front(values, ("higher", "lower"))
