import numpy as np
import pytest

from tokenpeak.loadgen.arrivals import staged_timetable, timetable
from tokenpeak.spec.load import OpenLoad, Stage, StagedLoad


@pytest.mark.parametrize(("burstiness", "variation"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_burstiness(burstiness: float, variation: float) -> None:
    """Gamma gaps vary by one over the root of the burstiness, and keep the mean rate."""
    level = OpenLoad(rate_per_s=10, requests=20_000, arrivals="gamma", burstiness=burstiness)
    gaps = np.diff(timetable(level, 1))

    assert (0.1, variation) == pytest.approx((np.mean(gaps), np.std(gaps) / np.mean(gaps)), rel=0.05)


def test_same_seed_same_timetable() -> None:
    """A timetable follows from its seed."""
    level = OpenLoad(rate_per_s=10, requests=100)

    assert timetable(level, 7) == timetable(level, 7) != timetable(level, 8)


def test_bound_by_time_counts_from_the_first_measured_request() -> None:
    """A level bounded by time lasts that long after its warm-up."""
    due = timetable(OpenLoad(rate_per_s=100, duration_s=5, warmup_requests=100, arrivals="constant"), 1)

    assert 600 == pytest.approx(len(due), abs=1)


def test_stages_hold_and_ramp() -> None:
    """A held stage has rate × time arrivals, a ramp from 0 half as many."""
    level = StagedLoad(
        stages=(Stage(duration_s=10, rate_per_s=20, ramp=True), Stage(duration_s=10, rate_per_s=20)),
        arrivals="constant",
    )
    due = np.array(staged_timetable(level, 1))

    assert (100, 200) == (pytest.approx((due < 10).sum(), abs=2), pytest.approx((due >= 10).sum(), abs=2))
