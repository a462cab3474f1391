"""The studentized range by quadrature is SciPy's."""

import pytest
from scipy import stats

from tokenpeak.ranking.intervals import range_critical


@pytest.mark.parametrize(
    ("means", "freedom"), [(3, 1), (3, 2), (5, 4), (10, 10), (20, 3), (40, 80), (250, 250), (1000, 500)]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_critical_value_is_scipys(means: int, freedom: int, confidence: float) -> None:
    """From a handful of launches to a thousand configs, within a ten-thousandth."""
    found = range_critical(means, freedom, confidence)
    below, above = stats.studentized_range.cdf([found * (1 - 1e-4), found * (1 + 1e-4)], means, freedom)

    assert below < confidence < above


@pytest.mark.parametrize("freedom", [1, 2, 4, 7, 30, 250])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_two_means_are_students_t(freedom: int, confidence: float) -> None:
    """Of two means it is √2 times Student's t, whose distribution is a closed form."""
    expected = 2**0.5 * stats.t.ppf((1 + confidence) / 2, freedom)
    assert pytest.approx(expected, rel=1e-6) == range_critical(2, freedom, confidence)
