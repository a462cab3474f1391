"""Winner groups: no false winners, and true ones are found."""

import math

import numpy as np
import pytest

from tokenpeak.ranking.intervals import clopper_pearson_interval
from tokenpeak.ranking.ties import Verdicts, winner_group

SWEEPS = 200


def simulated(generator: np.random.Generator, advantage: float, noise: float, arms: int, launches: int) -> Verdicts:
    """Ten identical configs, the first of which may be better."""
    centres = [np.log1p(advantage), *[0.0] * (arms - 1)]
    return winner_group(
        {f"config-{arm}": np.exp(generator.normal(centre, noise, launches)) for arm, centre in enumerate(centres)}
    )


@pytest.mark.parametrize("noise", [0.005, 0.03, 0.15])
def test_identical_configs_have_no_winner(noise: float) -> None:
    """Of 200 sweeps over ten identical configs at most 5% name a winner, and the interval allows no more than 5%."""
    generator = np.random.default_rng(20261121)
    false = sum(simulated(generator, 0.0, noise, 10, 6).winner is not None for _ in range(SWEEPS))
    interval = clopper_pearson_interval(false, SWEEPS)

    assert interval.high is not None and interval.high <= 0.05, f"{false} of {SWEEPS}, up to {interval.high:.1%}"


@pytest.mark.parametrize(("arms", "fewest"), [(2, 930), (10, 950)])
@pytest.mark.parametrize(("advantage", "noise"), [(0.03, 0.005), (0.10, 0.03), (0.40, 0.15)])
def test_a_true_advantage_is_found(advantage: float, noise: float, arms: int, fewest: int) -> None:
    """A config better by about three times what noise hides is found in 95% with six launches each, of two or of ten.

    Of two 95% is meant, with a standard error of 0.7%; among ten, what nine share shows each of them.
    """
    generator = np.random.default_rng(7)
    found = sum(simulated(generator, advantage, noise, arms, 6).winner == "config-0" for _ in range(1000))

    assert found >= fewest, f"{found / 10:.1f}% of 1000"


def test_two_tied_for_best_are_seldom_separated() -> None:
    """Where the rest is just too near to be separated from two that are tied, one is named in at most one of five."""
    generator = np.random.default_rng(3)
    false = 0
    for _ in range(500):
        centres = [0.0, 0.0, *[-0.2] * 8]
        launches = {str(arm): np.exp(generator.normal(centre, 0.15, 6)) for arm, centre in enumerate(centres)}
        false += winner_group(launches).winner is not None

    assert false <= 500 / 5


def test_less_than_the_margin_is_equal() -> None:
    """A difference beyond noise but below the margin leaves a config in the group, as worse with confidence."""
    verdicts = winner_group({"a": [100.0, 100.01, 99.99], "b": [99.0, 99.01, 98.99], "c": [90.0, 90.01, 89.99]})

    assert ("a", "b") == verdicts.group
    assert ["winner", "equal", "worse"] == [standing.standing for standing in verdicts.standings]


def test_without_repeats_nothing_is_decided() -> None:
    """One launch each shows no noise, so no config is left out."""
    verdicts = winner_group({"a": [100.0], "b": [50.0]})

    assert ("a", "b") == verdicts.group
    assert verdicts.noise is None


def test_launches_that_all_gave_the_same_are_separated_by_any_difference() -> None:
    """Rates are tried in steps, so launches of a config often agree to the last digit; equal configs stay tied."""
    found = winner_group({"a": [8.0, 8.0, 8.0], "same": [8.0, 8.0], "b": [4.0, 4.0]})

    assert ["winner", "tied", "worse"] == [standing.standing for standing in found.standings]
    assert "a" == winner_group({"a": [8.0] * 2, "b": [4.0] * 2, "c": [4.0] * 2, "d": [4.0] * 2}).winner
    assert winner_group({"a": [8.0, 8.0], "same": [8.0, 8.0]}).winner is None


def test_a_launch_that_gave_nothing_leaves_its_config_without_a_standing() -> None:
    """A config with a goodput of 0 in one launch is not judged by its other launches, nor the winner by them."""
    found = winner_group({"steady": [4.0, 4.1, 4.0], "lucky": [9.0, 0.0, 9.1], "slow": [1.0, 1.1, 1.0]})

    assert ["steady", "slow"] == [standing.config for standing in found.standings]
    assert "steady" == found.winner


def launches_around(centre: float, deviation: float, launches: int = 2) -> list[float]:
    """An even number of launches with this mean and this standard deviation of their logarithms."""
    half = deviation * math.sqrt((launches - 1) / launches)
    return [math.exp(centre + sign * half) for sign in (-1, 1) for _ in range(launches // 2)]


@pytest.mark.parametrize(("behind", "standing"), [(0.0590, "tied"), (0.0592, "worse")])
def test_the_last_of_three_is_left_out_beyond_the_studentized_range(behind: float, standing: str) -> None:
    """By the table, 5.910 of a mean's standard error (of three means, with three degrees of freedom), here 1%."""
    centres = {"a": 0.0, "b": -1e-6, "c": -behind}
    found = winner_group({name: launches_around(centre, 0.01 * math.sqrt(2)) for name, centre in centres.items()})

    assert ["winner", "tied", standing] == [each.standing for each in found.standings]


def test_nothing_is_left_out_above_what_stays() -> None:
    """Sixteen launches show that the second is behind; the third, behind it, may be as good, so the second may too."""
    found = winner_group({"a": [1.0], "b": launches_around(-0.046, 0.02, 16), "c": [math.exp(-0.0462)]})

    assert ["winner", "equal", "tied"] == [each.standing for each in found.standings]


def test_without_repeats_only_what_is_near_may_be_recommended() -> None:
    """Where nothing can be decided, what measured within the margin of the best is as good; what did not is not."""
    found = winner_group({"a": [100.0], "b": [98.5], "c": [97.5]})

    assert [True, True, False] == [each.may_be_recommended for each in found.standings]
