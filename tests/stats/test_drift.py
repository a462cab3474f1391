"""The anchor shows a machine that changes."""

import numpy as np
import pytest

from tokenpeak.stats.drift import corrected, drift


def anchor(slope: float, noise: float, jump: float = 0.0) -> list[tuple[float, float]]:
    """Eight launches over an hour."""
    generator = np.random.default_rng(4)
    times = np.linspace(0, 3600, 8)
    logs = slope * times / 3600 + generator.normal(0, noise, 8) + jump * (np.arange(8) % 2)
    return [(float(time), float(100 * np.exp(log))) for time, log in zip(times, logs, strict=True)]


def test_a_steady_machine_shows_none() -> None:
    """Noise alone is no drift."""
    assert "none" == drift(anchor(0.0, 0.005)).verdict


def test_a_warming_machine_is_corrected() -> None:
    """A loss of 6% over the sweep is seen with bounds, and taken out."""
    launches = anchor(-0.06, 0.003)
    seen = drift(launches)
    level = [corrected(value, time, seen) for time, value in launches]

    assert "steady" == seen.verdict
    assert seen.change_low is not None and seen.change_high is not None
    assert seen.change_low < np.exp(-0.06) < seen.change_high < 1
    assert max(level) / min(level) < 1.015


def test_a_neighbour_that_comes_and_goes_is_erratic() -> None:
    """A change that is no line is condemned, not corrected."""
    seen = drift(anchor(0.0, 0.003, jump=-0.1))

    assert "erratic" == seen.verdict
    assert pytest.approx(50.0) == corrected(50.0, 10.0, seen)


def test_two_launches_tell_nothing() -> None:
    """Drift needs three launches of the anchor."""
    assert "unknown" == drift([(0.0, 1.0), (10.0, 2.0)]).verdict
