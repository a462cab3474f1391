"""The anchor shows a machine that changes."""

import numpy as np

from tokenpeak.ranking.drift import drift, drift_words


def anchor(slope: float, noise: float, jump: float = 0.0) -> list[tuple[float, float]]:
    """Eight launches over an hour."""
    generator = np.random.default_rng(4)
    times = np.linspace(0, 3600, 8)
    logs = slope * times / 3600 + generator.normal(0, noise, 8) + jump * (np.arange(8) % 2)
    return [(float(time), float(100 * np.exp(log))) for time, log in zip(times, logs, strict=True)]


def test_a_steady_machine_shows_none() -> None:
    """Noise alone is no drift."""
    assert "none" == drift(anchor(0.0, 0.005)).verdict


def test_a_warming_machine_is_seen() -> None:
    """A loss of 6% over the sweep is seen with bounds."""
    seen = drift(anchor(-0.06, 0.003))

    assert "steady" == seen.verdict
    assert seen.change_low is not None and seen.change_high is not None
    assert seen.change_low < np.exp(-0.06) < seen.change_high < 1


def test_a_neighbour_that_comes_and_goes_is_erratic() -> None:
    """A change that is no line is condemned."""
    assert "erratic" == drift(anchor(0.0, 0.003, jump=-0.1)).verdict


def test_the_anchor_is_no_config_that_was_picked() -> None:
    """A finalist was picked for its first launch, so the baseline speaks, though it has fewer launches."""
    launches = [("one", "defaults", time, value) for time, value in anchor(-0.06, 0.003)]
    picked = [("one", "best", 100.0 * number, 120.0) for number in range(20)]
    (words,) = drift_words([*picked, *launches], baseline=("defaults",), margin=0.02)

    assert words.startswith("Drift: −") and "by 8 launches of defaults." in words


def test_launches_that_cannot_separate_a_drift_do_not_rule_it_out() -> None:
    """Three launches of a machine that loses 5% have wide bounds: these are shown, and not that there is no drift."""
    few = [("one", "defaults", time, value) for time, value in ((0.0, 100.0), (1800.0, 96.8), (3600.0, 95.0))]
    many = [("one", "defaults", time, value) for time, value in anchor(0.0, 0.002)]
    words = [drift_words(launches, baseline=("defaults",), margin=0.02)[0] for launches in (few, many)]

    assert words[0].startswith("Drift: between −1") and words[0].endswith("; three launches are too few to narrow it.")
    assert "Drift: none beyond 2%, by 8 launches of defaults." == words[1]
