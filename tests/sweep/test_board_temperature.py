"""Temperature of the boards when a run begins."""

from tokenpeak.records import Series
from tokenpeak.results.board_readings import board_temperature_c

TIMES = (0.0, 0.2, 1.0, 1.2, 2.0, 2.2, 9.0)
FIRST = (40.0, None, 50.0, None, 60.0, None, 70.0)
SECOND = (44.0, None, 54.0, None, 64.0, None, None)


def test_nearest_readings_of_all_boards_are_averaged() -> None:
    series = Series(t_s=TIMES, columns={"gpu0_temperature_c": FIRST, "gpu1_temperature_c": SECOND})

    assert board_temperature_c(series, 1.2) == 52.0


def test_a_board_without_a_reading_near_gives_none() -> None:
    both = Series(t_s=TIMES, columns={"gpu0_temperature_c": FIRST, "gpu1_temperature_c": SECOND})

    assert board_temperature_c(both, 8.0) is None
    assert board_temperature_c(Series(t_s=TIMES, columns={"gpu0_temperature_c": FIRST}), 8.0) == 70.0
    assert board_temperature_c(Series(t_s=TIMES, columns={"gpu0_power_w": FIRST}), 1.0) is None
