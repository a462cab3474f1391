"""Drift of power with temperature, on sweeps of known drift."""

import numpy as np
import pytest

from tokenpeak.ranking.drift import TemperatureDrift, temperature_drift

SWEEPS = 2000


def sweep(random: np.random.Generator, per_degree: float) -> TemperatureDrift:
    """Six configs of their own power and warmth, three launches each, in a sweep that warms up; 1% noise."""
    launches = {}
    for config in range(6):
        busy = random.uniform(0.4, 0.9)
        degrees = 40 + 20 * busy + random.uniform(0, 15, 3)
        power = 700 * busy * np.exp(per_degree * (degrees - 60) + random.normal(0, 0.01, 3))
        launches[str(config)] = list(zip(degrees, power, strict=True))
    found = temperature_drift(launches)
    assert found is not None
    return found


def test_drift_is_seen_without_any_in_five_percent_of_sweeps() -> None:
    """The stated rate, within what 2,000 sweeps show; busy configs are hot and draw more, and that counts for none."""
    random = np.random.default_rng(5)
    seen = np.mean([sweep(random, 0.0).is_significant for _ in range(SWEEPS)])

    assert seen == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / SWEEPS))


def test_drift_of_boards_is_found() -> None:
    """0.3% for each degree is seen in nearly every sweep, and lies in the interval in 95%."""
    random = np.random.default_rng(6)
    found = [sweep(random, 0.003) for _ in range(SWEEPS // 4)]

    assert np.mean([each.is_significant for each in found]) >= 0.9
    assert 0.92 <= np.mean([each.low <= np.expm1(0.003) <= each.high for each in found]) <= 0.98


def test_configs_launched_once_show_no_drift() -> None:
    """Between different configs a difference of power is not the temperature's."""
    assert temperature_drift({"a": [(40.0, 300.0)], "b": [(60.0, 400.0)], "c": [(70.0, 500.0)]}) is None
    assert temperature_drift({"a": [(50.0, 300.0), (50.0, 301.0), (50.0, 302.0), (50.0, 303.0)]}) is None
