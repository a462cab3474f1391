"""Two launches of one config on boards that warm up: their energy differs significantly in few cases."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from scipy import stats

from metered_boards import FAMILIES, Load, metered_run
from tokenpeak.ranking.intervals import LaunchEnergy, energy_intervals

CASES_EACH = 40
RUN_S = 10.0
PER_DEGREE = 0.0015
"""Of its power: what a board draws more for each degree."""
Pair = tuple[LaunchEnergy, LaunchEnergy]


def launch(random: np.random.Generator, capability: str, load: Load, *, more: float = 1.0) -> LaunchEnergy | None:
    """One launch in a sweep in which the board goes from 45 to 70 °C; None where it has no figure."""
    scale = more * random.normal(1, 0.005)
    mean_w = FAMILIES[capability][0] * load.decode
    own = Load(
        decode=load.decode * scale, prefill=load.prefill * scale, prefill_s=load.prefill_s, decode_s=load.decode_s
    )
    warm_w = mean_w * PER_DEGREE * (random.uniform(45, 70) - 57.5)
    found = metered_run(random, capability, RUN_S, by_counter=True, load=own, warmer_w=warm_w).found
    if found.energy_j is None:
        return None
    return LaunchEnergy(joule=found.energy_j, low=found.energy_low_j, high=found.energy_high_j)


@cache
def pairs(more: float) -> list[Pair]:
    """Two launches each, the second one of a config that draws so many times as much, on all families."""
    found = []
    for capability in FAMILIES:
        random = np.random.default_rng([17, int(float(capability) * 10), int(1000 * more)])
        for _ in range(CASES_EACH):
            load = Load(decode=random.uniform(0.35, 0.7), prefill=0.75, prefill_s=0.05, decode_s=random.uniform(0.1, 1))
            two = launch(random, capability, load), launch(random, capability, load, more=more)
            if two[0] is not None and two[1] is not None:
                found.append((two[0], two[1]))
    assert len(found) > 3 * CASES_EACH
    return found


def spread_of(launches: Sequence[LaunchEnergy]) -> float:
    """Standard deviation of log energies of launches of one config."""
    return float(np.std([math.log(each.joule) for each in launches], ddof=1))


def differs(two: Pair) -> bool:
    """Whether the intervals of two configs with one launch each leave no overlap, by the spread of all pairs alike."""
    alike = pairs(1.0)
    spread = math.sqrt(np.mean([spread_of(each) ** 2 for each in alike]))
    ends = energy_intervals({"one": two[:1], "other": two[1:]}, spread=spread, freedom=len(alike))
    (low, high), (other_low, other_high) = ends.values()
    return low > other_high or other_low > high


def test_two_launches_of_one_config_are_tied() -> None:
    """In at most 5% of cases they seem to differ; by the sensors' intervals alone they do in many."""
    by_sensor = [one.low > other.high or other.low > one.high for one, other in pairs(1.0)]  # type: ignore[operator]

    assert np.mean([differs(two) for two in pairs(1.0)]) <= 0.05
    assert np.mean(by_sensor) > 0.05


def test_a_config_that_draws_much_more_is_separated() -> None:
    """Ties are not had by intervals that hold everything."""
    assert np.mean([differs(two) for two in pairs(1.15)]) >= 0.9


def test_the_larger_of_spread_and_sensor_is_the_width() -> None:
    """The sensor's error is part of the spread that launches show; a mean of several is known better."""
    launches = {
        "once": [LaunchEnergy(joule=1.0)],
        "four times": [LaunchEnergy(joule=1.0)] * 4,
        "by a poor sensor": [LaunchEnergy(joule=1.0, low=math.exp(-0.196), high=math.exp(0.196))],
    }
    found = energy_intervals(launches, spread=0.02, freedom=6)
    reach = float(stats.t.ppf(0.975, 6))
    expected = {"once": 0.02 * reach, "four times": 0.01 * reach, "by a poor sensor": 0.1 * reach}

    for config, half in expected.items():
        assert (math.exp(-half), math.exp(half)) == pytest.approx(found[config], rel=1e-4)
