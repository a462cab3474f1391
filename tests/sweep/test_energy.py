"""The energy of a run from each kind of sensor, and from none; its interval against boards of known power."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from metered_boards import FAMILIES, MeteredRun, metered_run
from tokenpeak.records import Energy, Series
from tokenpeak.results.energy import run_energies

Columns = dict[str, tuple[float | None, ...]]
COUNTER = tuple(50.0 * t for t in range(9))
"""J at 50 W, read once a second from 0 s to 8 s."""
BACKWARDS = (10.0, 20, 30, 0, 10, 20, 30, 40, 50)
GAP = (100.0, 100.0, 100.0, None, None, 100.0, 100.0, 100.0, 100.0)
PARTS: Columns = {
    f"cpu_{part}_energy_j": tuple(float(w * t) for t in range(9)) for part, w in (("package", 20), ("dram", 5))
}


def energies(
    columns: Columns,
    *,
    times: Sequence[float] = tuple(map(float, range(9))),
    window: tuple[float, float] = (2.0, 6.0),
    tokens: int = 100,
    tdp_w: float | None = None,
) -> list[Energy]:
    """Every energy of a run in this window of its trial's samples."""
    series = Series(t_s=tuple(times), columns=columns)
    given: dict[str, Any] = {"output_tokens": tokens, "tdp_w": tdp_w, "tdp_boundary": "gpu_boards"}
    return list(run_energies(series, from_s=window[0], to_s=window[1], **given))


def middle_j(found: Energy) -> float:
    """The middle of an energy's interval, whether or not it is known well enough for a figure."""
    assert found.energy_low_j is not None
    assert found.energy_high_j is not None
    return (found.energy_low_j + found.energy_high_j) / 2


@pytest.mark.parametrize(
    ("columns", "source", "boundary", "energy_j"),
    [
        ({"gpu0_energy_j": COUNTER, "gpu0_power_w": (1.0,) * 9}, "energy_counter", "gpu_boards", 200.0),
        ({"gpu0_energy_j": COUNTER, "gpu1_energy_j": COUNTER}, "energy_counter", "gpu_boards", 400.0),
        # A reading stands for the tenth of a second before it.
        ({"gpu0_power_w": tuple(float(10 * t) for t in range(9))}, "sampled_power", "gpu_boards", 164.0),
        ({"gpu0_power_w": GAP}, "sampled_power", "gpu_boards", 400.0),
        ({"gpu0_energy_j": BACKWARDS, "gpu0_power_w": (7.0,) * 9}, "sampled_power", "gpu_boards", 28.0),
        ({"gpu0_energy_j": (0.0,) * 9, "gpu0_power_w": (70.0,) * 9}, "sampled_power", "gpu_boards", 280.0),
        (
            {"gpu0_energy_j": COUNTER, "gpu0_power_w": (50.0,) * 9, "gpu1_power_w": (50.0,) * 9},
            "sampled_power",
            "gpu_boards",
            400.0,
        ),
        ({"cpu_package_energy_j": PARTS["cpu_package_energy_j"]}, "energy_counter", "cpu_package", 80.0),
        (PARTS, "energy_counter", "cpu_and_dram", 100.0),
    ],
    ids=[
        "counter before power",
        "boards add up",
        "power is integrated",
        "missing samples are bridged",
        "counter that went backwards",
        "counter that stands still",
        "one of two boards has a counter",
        "processors",
        "processors with memory",
    ],
)
def test_sensor(columns: Columns, source: str, boundary: str, energy_j: float) -> None:
    """The best sensor that all boards have gives the joules between the run's ends, by its boundary's name."""
    found = energies(columns)[0]

    assert (source, boundary) == (found.source, found.boundary)
    assert pytest.approx(energy_j) == middle_j(found)


def test_figures_of_a_counter() -> None:
    """Energy, power and energy per token; the interval is that of a counter read 0.1 s late at most."""
    (found,) = energies({"gpu0_energy_j": COUNTER})

    assert (200.0, 50.0, 2.0) == (found.energy_j, found.power_w, found.energy_j_per_output_tok)
    assert 190 < (found.energy_low_j or 0) < 199
    assert 201 < (found.energy_high_j or 0) < 210


@pytest.mark.parametrize(
    ("times", "values", "window", "needed_s"),
    [
        ([0.2 * n for n in range(20)], [100.0 + 40 * (n % 3) for n in range(20)], (1.0, 1.5), (0.5, 30)),
        ([0.0, 1.0, 2.0, 3.0], [100.0, 200.0, 300.0, 400.0], (1.2, 1.5), (0, 1e9)),
        ([0.0, 1.0, 2.0], [80.0, 90.0, 100.0], (3.0, 3.5), (0, 1e9)),
    ],
    ids=["too short", "between two samples", "just beyond the last sample"],
)
def test_run_that_is_not_known_well_has_no_figure(
    times: list[float], values: list[float], window: tuple[float, float], needed_s: tuple[float, float]
) -> None:
    """What is not known within ±5% has an interval alone; the record says what length would do."""
    (found,) = energies({"gpu0_power_w": tuple(values)}, times=times, window=window)

    assert (None, None) == (found.energy_j, found.energy_j_per_output_tok)
    assert needed_s[0] <= (found.needed_s or 0) < needed_s[1]


def test_power_that_fell_silent_in_the_run_is_not_guessed() -> None:
    """A minute without samples says nothing of the power in it; a counter has gone on counting."""
    times = (0.0, 1.0, 2.0, 62.0, 63.0, 64.0)
    power: Columns = {"gpu0_power_w": (300.0, 300.0, 300.0, 80.0, 80.0, 80.0)}
    counter: Columns = {"gpu0_energy_j": (0.0, 300.0, 600.0, 18000.0, 18080.0, 18160.0)}
    (found,) = energies(power | counter, times=times, window=(1.0, 63.0))

    assert [] == energies(power, times=times, window=(1.0, 63.0))
    assert [] == energies({"gpu0_power_w": (50.0,) * 3}, times=(0.0, 1.0, 2.0), window=(1.0, 20.0))
    assert found.energy_j == pytest.approx(17780.0, rel=0.002)


def test_without_a_sensor_full_power_is_the_estimate() -> None:
    """Declared power at full load times the length of the run, and no number without it."""
    (found,) = energies({}, tdp_w=300.0)
    (without_tokens,) = energies({}, tdp_w=300.0, tokens=0)

    assert ("estimated_tdp", 1200.0, 12.0) == (found.source, found.energy_j, found.energy_j_per_output_tok)
    assert None is without_tokens.energy_j_per_output_tok
    assert [] == energies({})


def test_each_boundary_that_is_measured_is_named() -> None:
    """Boards first, then the whole node, whose 240 W hold the boards' 150, then processors with their memory."""
    boards: Columns = {f"gpu{n}_energy_j": tuple(watts * t for t in range(9)) for n, watts in enumerate((100.0, 50.0))}
    found = energies({**boards, "node_power_w": (240.0,) * 9, **PARTS}, tokens=10)

    assert ["gpu_boards", "node", "cpu_and_dram"] == [each.boundary for each in found]
    assert [pytest.approx(watts * 4) for watts in (150, 240, 25)] == [middle_j(each) for each in found]


@pytest.mark.parametrize(("run_s", "is_known"), [(4, False), (40, True)])
def test_node_that_is_read_once_a_second_needs_a_longer_run(run_s: int, is_known: bool) -> None:
    """Four seconds by a BMC are not known within ±5% where the load ends; forty are."""
    times = tuple(float(t) for t in range(run_s + 9))
    power_w = tuple(600.0 if 4 <= t <= run_s + 4 else 150.0 for t in times)
    (found,) = energies({"node_power_w": power_w}, times=times, window=(4.0, 4.0 + run_s))

    assert is_known == (found.energy_j is not None)


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
