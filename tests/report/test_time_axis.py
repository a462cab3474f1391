"""The picture of a trial's series."""

import polars as pl
import pytest

from tokenpeak.report.trials.time_axis import POINTS, time_axis
from tokenpeak.report.trials.trial_page import whole_percents


def series(quantity: str, values: list[float | None]) -> pl.DataFrame:
    """A sample a second."""
    return pl.DataFrame({"quantity": quantity, "t_s": [float(t) for t in range(len(values))], "value": values})


def test_devices_share_a_lane() -> None:
    """Two boards are two lines of one lane, on one scale."""
    both = pl.concat([series("gpu0_power_w", [100.0, 200.0]), series("gpu1_power_w", [50.0, 60.0])])
    lane = time_axis(2.0, [], [], both).lanes[0]

    assert "Power" == lane.title
    assert "W" == lane.unit
    assert "50" == lane.low
    assert "200" == lane.high
    assert 2 == len(lane.lines)


@pytest.mark.parametrize(
    ("parts", "percents"),
    [
        ([8.5, 21.2, 2.0], [27, 67, 6]),
        # Each rounded by itself: 34, 33, 33 and 1, which sum to 101.
        ([33.6, 32.8, 33.0, 0.6], [34, 33, 33, 0]),
        ([1.0, 1.0, 1.0], [34, 33, 33]),
        ([5.0], [100]),
        ([0.0, 0.0], [0, 0]),
        ([], []),
    ],
)
def test_percents_of_a_trials_time_sum_to_100(parts: list[float], percents: list[int]) -> None:
    """What parts round to by themselves may sum to 101: the smallest remainders are rounded down."""
    assert percents == whole_percents(parts)


def test_long_series_keep_their_extremes() -> None:
    """Thinning keeps a single spike."""
    values: list[float | None] = [1.0] * 10_000
    values[5_432] = 99.0
    lane = time_axis(10_000.0, [], [], series("power_w", values)).lanes[0]

    assert POINTS >= len(lane.lines[0].split())
    assert any(point.endswith(",4") for point in lane.lines[0].split())
