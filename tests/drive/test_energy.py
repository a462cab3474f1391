"""The energy of a run from each kind of sensor, and from none."""

import pytest

from tokenpeak.drive.energy import run_energy
from tokenpeak.records import Energy, Series


def energy(
    columns: dict[str, tuple[float | None, ...]], *, tdp_w: float | None = None, tokens: int = 100
) -> Energy | None:
    """A run from 2 s to 6 s of a trial sampled once a second from 0 s to 8 s."""
    series = Series(t_s=tuple(float(t) for t in range(9)), columns=columns)
    return run_energy(series, from_s=2.0, to_s=6.0, output_tokens=tokens, tdp_w=tdp_w, tdp_boundary="gpu_boards")


def test_counter_is_read_at_both_ends() -> None:
    """An energy counter gives the joules between the run's ends, whatever the power samples say."""
    found = energy({"gpu0_energy_j": tuple(1000.0 + 50 * t for t in range(9)), "gpu0_power_w": (1.0,) * 9})

    expected = Energy(
        source="energy_counter", boundary="gpu_boards", energy_j=200.0, power_w=50.0, energy_j_per_output_tok=2.0
    )
    assert expected == found


def test_counters_of_all_gpus_add_up() -> None:
    """Two boards draw the sum of both."""
    found = energy({f"gpu{n}_energy_j": tuple(float(50 * t) for t in range(9)) for n in (0, 1)})

    assert found is not None
    assert 400.0 == found.energy_j


def test_power_is_integrated_between_samples() -> None:
    """Sampled power is integrated by trapezoids from end to end of the run."""
    found = energy({"gpu0_power_w": tuple(float(10 * t) for t in range(9))})

    assert found is not None
    assert ("sampled_power", pytest.approx(160.0), pytest.approx(40.0)) == (found.source, found.energy_j, found.power_w)


def test_missing_samples_are_bridged() -> None:
    """A sample that is not there does not count as zero."""
    found = energy({"gpu0_power_w": (100.0, 100.0, 100.0, None, None, 100.0, 100.0, 100.0, 100.0)})

    assert found is not None
    assert pytest.approx(400.0) == found.energy_j


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
    assert ("sampled_power", pytest.approx(400.0)) == (found.source, found.energy_j)


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
    assert 17780.0 == found[1].energy_j


def test_short_run_just_beyond_the_last_sample_takes_its_power() -> None:
    """A run that was broken off within the tolerance after the last sample is measured, and ends no sweep."""
    series = Series(t_s=(0.0, 1.0, 2.0), columns={"gpu0_power_w": (80.0, 90.0, 100.0)})

    found = run_energy(series, from_s=3.0, to_s=3.5, output_tokens=0, tdp_w=None, tdp_boundary="gpu_boards")

    assert found is not None
    assert ("sampled_power", 50.0, 100.0) == (found.source, found.energy_j, found.power_w)


def test_samples_that_do_not_cover_the_run_are_not_used() -> None:
    """Samples that stopped long before the run's end give no measured energy."""
    series = Series(t_s=(0.0, 1.0, 2.0), columns={"gpu0_power_w": (50.0, 50.0, 50.0)})
    found = run_energy(series, from_s=1.0, to_s=20.0, output_tokens=1, tdp_w=None, tdp_boundary="gpu_boards")

    assert None is found


def test_without_a_sensor_full_power_is_the_estimate() -> None:
    """Declared power at full load times the length of the run, marked as an estimate."""
    found = energy({}, tdp_w=300.0)

    assert found is not None
    assert ("estimated_tdp", 1200.0, 12.0) == (found.source, found.energy_j, found.energy_j_per_output_tok)


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
    assert ("cpu_package", 80.0) == (found.boundary, found.energy_j)
