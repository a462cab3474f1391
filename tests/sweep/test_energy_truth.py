"""Energy and its interval against boards of known power, read through the sensors of four GPU families."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from metered_boards import FAMILIES, MeteredRun, metered_run
from tokenpeak.results.power_sensor import power_sensor
from tokenpeak.results.run_length import figure_needs_s

CASES_EACH = 32


def case(capability: str, by_counter: bool, *seed: int) -> MeteredRun:
    random = np.random.default_rng([*seed, int(by_counter), int(float(capability) * 10)])
    duration_s = float(np.exp(random.uniform(0, np.log(120))))
    return metered_run(random, capability, duration_s, by_counter=by_counter)


@cache
def cases() -> list[MeteredRun]:
    return [case(*each) for each in product(FAMILIES, (True, False), range(CASES_EACH))]


def test_the_interval_holds_the_truth() -> None:
    """Of 256 runs of 1 to 120 s, 90 to 98% lie within their interval of 95%: it is no wider than needed."""
    held = np.mean([each.holds for each in cases()])

    assert 0.90 <= held <= 0.98


@pytest.mark.parametrize("by_counter", [True, False])
@pytest.mark.parametrize("capability", FAMILIES)
def test_each_family_has_an_interval_of_its_own(capability: str, by_counter: bool) -> None:
    """Neither too wide on one family nor too narrow on another, on runs that nothing was adjusted on."""
    held = np.mean([case(capability, by_counter, 2026, seed).holds for seed in range(100)])

    assert 0.90 <= held <= 0.99


@pytest.mark.parametrize(("by_counter", "limit"), [(True, 0.02), (False, 0.05)])
def test_runs_of_twenty_seconds_are_known_well(by_counter: bool, limit: float) -> None:
    errors = [each.error for each in cases() if each.by_counter == by_counter and each.duration_s >= 20]

    assert len(errors) > 30
    assert np.median(errors) <= limit


def test_no_figure_where_five_percent_cannot_be_had() -> None:
    """A run whose interval is wider than ±5% has no energy, and the length that would do is longer than it was."""
    without = [each for each in cases() if each.found.energy_j is None]
    figures = [each for each in cases() if each.found.energy_j is not None]

    assert 10 < len(without) < len(cases()) / 3
    assert all(each.found.needed_s is not None and each.found.needed_s > each.duration_s for each in without)
    assert np.mean([each.error <= 0.05 for each in figures]) >= 0.99


def test_the_length_that_would_do_does() -> None:
    """Runs at least as long as short ones of their family said have an energy figure, but for a few."""
    for capability, by_counter in product(FAMILIES, (True, False)):
        own = [each for each in cases() if (each.capability, each.by_counter) == (capability, by_counter)]
        said_s = [each.found.needed_s for each in own if each.found.needed_s is not None]
        if not said_s:
            continue
        longer = [each.found.energy_j is not None for each in own if each.duration_s >= np.median(said_s)]
        assert np.mean(longer) >= 0.9, f"{capability}, {'counter' if by_counter else 'power'}: {np.median(said_s)} s"


@pytest.mark.parametrize("capability", FAMILIES)
def test_the_length_that_a_plan_asks_for_does(capability: str) -> None:
    """Of runs of that length nearly all have a figure by the counter; of those a fifth as long, under half."""
    needed_s = figure_needs_s(power_sensor(capability), 0.2)

    def figures(share: float) -> float:
        random = np.random.default_rng([1, int(float(capability) * 10)])
        runs = [metered_run(random, capability, share * needed_s, by_counter=True) for _ in range(60)]
        return float(np.mean([run.found.energy_j is not None for run in runs]))

    assert figures(1.05) >= 0.95
    assert figures(0.2) < 0.5
