"""The energy of a run from each kind of sensor, and from none."""

import pytest

from tokenpeak.records import Energy, EnergyBoundary, Series
from tokenpeak.results.energy import run_energies

PARTS = {"package": 20, "dram": 5}
"""W."""


def run_energy(
    series: Series,
    *,
    from_s: float,
    to_s: float,
    output_tokens: int,
    tdp_w: float | None,
    tdp_boundary: EnergyBoundary,
) -> Energy | None:
    """The energy of the run's own boundary."""
    found = run_energies(
        series, from_s=from_s, to_s=to_s, output_tokens=output_tokens, tdp_w=tdp_w, tdp_boundary=tdp_boundary
    )
    return found[0] if found else None


def energy(
    columns: dict[str, tuple[float | None, ...]], *, tdp_w: float | None = None, tokens: int = 100
) -> Energy | None:
    """A run from 2 s to 6 s of a trial sampled once a second from 0 s to 8 s."""
    series = Series(t_s=tuple(float(t) for t in range(9)), columns=columns)
    return run_energy(series, from_s=2.0, to_s=6.0, output_tokens=tokens, tdp_w=tdp_w, tdp_boundary="gpu_boards")


def middle_j(found: Energy) -> float:
    """What was found of an energy, whether or not it is known well enough for a figure."""
    assert found.energy_low_j is not None
    assert found.energy_high_j is not None
    return (found.energy_low_j + found.energy_high_j) / 2


def test_counter_is_read_at_both_ends() -> None:
    """An energy counter gives the joules between the run's ends, whatever the power samples say."""
    found = energy({"gpu0_energy_j": tuple(1000.0 + 50 * t for t in range(9)), "gpu0_power_w": (1.0,) * 9})

    assert found is not None
    assert "energy_counter" == found.source
    assert "gpu_boards" == found.boundary
    assert pytest.approx(200.0) == found.energy_j
    assert pytest.approx(50.0) == found.power_w
    assert pytest.approx(2.0) == found.energy_j_per_output_tok


def test_interval_is_around_the_energy() -> None:
    """A counter that is read 0.1 s late at most is known to a few joules at 50 W."""
    found = energy({"gpu0_energy_j": tuple(1000.0 + 50 * t for t in range(9))})

    assert found is not None
    assert found.energy_low_j is not None
    assert found.energy_high_j is not None
    assert 190 < found.energy_low_j < 199
    assert 201 < found.energy_high_j < 210


def test_run_too_short_for_its_sensor_has_no_figure() -> None:
    """Half a second of sampled power is not known within ±5%; the record says what length would do."""
    times = tuple(0.2 * number for number in range(20))
    series = Series(t_s=times, columns={"gpu0_power_w": tuple(100.0 + 40 * (n % 3) for n in range(20))})

    found = run_energy(series, from_s=1.0, to_s=1.5, output_tokens=9, tdp_w=None, tdp_boundary="gpu_boards")

    assert found is not None
    assert found.energy_j is None
    assert found.energy_j_per_output_tok is None
    assert found.needed_s is not None
    assert 0.5 < found.needed_s < 30


def test_counters_of_all_gpus_add_up() -> None:
    """Two boards draw the sum of both."""
    found = energy({f"gpu{n}_energy_j": tuple(float(50 * t) for t in range(9)) for n in (0, 1)})

    assert found is not None
    assert 400.0 == found.energy_j


def test_power_is_integrated_between_samples() -> None:
    """Sampled power is integrated by trapezoids from end to end of the run."""
    found = energy({"gpu0_power_w": tuple(float(10 * t) for t in range(9))})

    assert found is not None
    assert "sampled_power" == found.source
    # A reading stands for the tenth of a second before it.
    assert pytest.approx(164.0) == middle_j(found)


def test_two_samples_of_one_moment_count_once() -> None:
    """A sampler that wrote twice within a millisecond gives no infinite power."""
    times = (0.0, 1.0, 2.0, 2.0, 3.0, 6.0, 6.0, 7.0, 8.0)
    columns = {"gpu0_energy_j": (0.0, 50, 100, 100, 150, 300, 300, 350, 400), "gpu0_power_w": (50.0,) * 9}
    for name in columns:
        series = Series(t_s=times, columns={name: columns[name]})
        found = run_energy(series, from_s=2.0, to_s=6.0, output_tokens=1, tdp_w=None, tdp_boundary="gpu_boards")

        assert found is not None
        assert middle_j(found) == pytest.approx(200.0, rel=0.03)


@pytest.mark.parametrize("column", ["gpu0_energy_j", "gpu0_power_w"])
def test_run_between_two_samples_has_no_figure(column: str) -> None:
    series = Series(t_s=(0.0, 1.0, 2.0, 3.0), columns={column: (100.0, 200.0, 300.0, 400.0)})
    found = run_energy(series, from_s=1.2, to_s=1.5, output_tokens=1, tdp_w=None, tdp_boundary="gpu_boards")

    assert found is not None
    assert found.energy_j is None


def test_missing_samples_are_bridged() -> None:
    """A sample that is not there does not count as zero."""
    found = energy({"gpu0_power_w": (100.0, 100.0, 100.0, None, None, 100.0, 100.0, 100.0, 100.0)})

    assert found is not None
    assert pytest.approx(400.0) == middle_j(found)


def test_counter_that_went_backwards_is_not_used() -> None:
    """A counter that was reset in between says nothing; the power samples do."""
    found = energy({"gpu0_energy_j": (10.0, 20, 30, 0, 10, 20, 30, 40, 50), "gpu0_power_w": (7.0,) * 9})

    assert found is not None
    assert "sampled_power" == found.source


def test_boards_without_a_counter_are_not_left_out() -> None:
    """Where one of two boards has a counter, the sampled power of both is summed."""
    found = energy(
        {"gpu0_energy_j": tuple(50.0 * t for t in range(9)), **{f"gpu{n}_power_w": (50.0,) * 9 for n in (0, 1)}}
    )

    assert found is not None
    assert "sampled_power" == found.source
    assert pytest.approx(400.0) == middle_j(found)


def test_power_that_fell_silent_in_the_run_is_not_guessed() -> None:
    """A minute without samples says nothing of the power in it; a counter has gone on counting."""
    times = (0.0, 1.0, 2.0, 62.0, 63.0, 64.0)
    power = {"gpu0_power_w": (300.0, 300.0, 300.0, 80.0, 80.0, 80.0)}
    counter = {"gpu0_energy_j": (0.0, 300.0, 600.0, 18000.0, 18080.0, 18160.0)}
    found = [
        run_energy(
            Series(t_s=times, columns=columns),
            from_s=1.0,
            to_s=63.0,
            output_tokens=1,
            tdp_w=None,
            tdp_boundary="gpu_boards",
        )
        for columns in (power, power | counter)
    ]

    assert None is found[0]
    assert found[1] is not None
    assert found[1].energy_j == pytest.approx(17780.0, rel=0.002)


def test_short_run_just_beyond_the_last_sample_has_no_figure() -> None:
    """A run that was broken off within the tolerance after the last sample is not known well, and ends no sweep."""
    series = Series(t_s=(0.0, 1.0, 2.0), columns={"gpu0_power_w": (80.0, 90.0, 100.0)})

    found = run_energy(series, from_s=3.0, to_s=3.5, output_tokens=0, tdp_w=None, tdp_boundary="gpu_boards")

    assert found is not None
    assert "sampled_power" == found.source
    assert found.energy_j is None
    assert pytest.approx(50.0) == middle_j(found)


def test_samples_that_do_not_cover_the_run_are_not_used() -> None:
    """Samples that stopped long before the run's end give no measured energy."""
    series = Series(t_s=(0.0, 1.0, 2.0), columns={"gpu0_power_w": (50.0, 50.0, 50.0)})
    found = run_energy(series, from_s=1.0, to_s=20.0, output_tokens=1, tdp_w=None, tdp_boundary="gpu_boards")

    assert None is found


def test_without_a_sensor_full_power_is_the_estimate() -> None:
    """Declared power at full load times the length of the run, marked as an estimate."""
    found = energy({}, tdp_w=300.0)

    assert found is not None
    assert "estimated_tdp" == found.source
    assert 1200.0 == found.energy_j
    assert 12.0 == found.energy_j_per_output_tok


def test_nothing_known_gives_no_energy() -> None:
    """Without sensor and declared power there is no number rather than a zero."""
    assert None is energy({})


def test_run_without_tokens_has_no_energy_per_token() -> None:
    """Energy that gave no token is energy still."""
    found = energy({}, tdp_w=300.0, tokens=0)

    assert found is not None
    assert None is found.energy_j_per_output_tok


def test_cpu_package_has_its_own_boundary() -> None:
    """A node without GPU sensors is measured at its processors, and says so."""
    found = energy({"cpu_package_energy_j": tuple(float(20 * t) for t in range(9))})

    assert found is not None
    assert "cpu_package" == found.boundary
    assert pytest.approx(80.0) == found.energy_j


def test_memory_counts_with_the_processors_where_it_has_a_counter() -> None:
    """The boundary's name says so."""
    counters = {f"cpu_{part}_energy_j": tuple(float(watts * t) for t in range(9)) for part, watts in PARTS.items()}
    found = energy(counters)

    assert found is not None
    assert "cpu_and_dram" == found.boundary
    assert pytest.approx(100.0) == found.energy_j


def test_each_boundary_that_is_measured_is_named() -> None:
    """Boards first, then the whole node, whose 240 W hold the boards' 150, then processors with their memory."""
    columns = {
        "gpu0_energy_j": tuple(100.0 * t for t in range(9)),
        "gpu1_energy_j": tuple(50.0 * t for t in range(9)),
        "node_power_w": (240.0,) * 9,
        **{f"cpu_{part}_energy_j": tuple(float(watts * t) for t in range(9)) for part, watts in PARTS.items()},
    }
    series = Series(t_s=tuple(float(t) for t in range(9)), columns=columns)

    found = run_energies(series, from_s=2.0, to_s=6.0, output_tokens=10, tdp_w=None, tdp_boundary="gpu_boards")

    assert ["gpu_boards", "node", "cpu_and_dram"] == [each.boundary for each in found]
    assert [pytest.approx(watts * 4) for watts in (150, 240, 25)] == [middle_j(each) for each in found]


def test_node_that_is_read_once_a_second_needs_a_longer_run() -> None:
    """Four seconds by a BMC are not known within ±5% where the load ends; forty are."""
    for run_s, is_known in ((4, False), (40, True)):
        times = tuple(float(t) for t in range(run_s + 9))
        power_w = tuple(600.0 if 4 <= t <= run_s + 4 else 150.0 for t in times)
        series = Series(t_s=times, columns={"node_power_w": power_w})
        found = run_energy(series, from_s=4.0, to_s=4.0 + run_s, output_tokens=1, tdp_w=None, tdp_boundary="node")

        assert found is not None
        assert is_known == (found.energy_j is not None)


def test_counter_that_stands_still_is_not_used() -> None:
    """A board whose counter shows one number draws power all the same."""
    found = energy({"gpu0_energy_j": (0.0,) * 9, "gpu0_power_w": (70.0,) * 9})

    assert found is not None
    assert "sampled_power" == found.source
    assert pytest.approx(280.0) == middle_j(found)
