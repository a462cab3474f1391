"""Critical values of the studentized range are SciPy's own quantiles."""

import pytest
from scipy import stats

from tokenpeak.ranking.intervals import range_critical


@pytest.mark.parametrize(
    ("means", "freedom", "confidence"), [(2, 4, 0.95), (3, 1, 0.95), (10, 10, 0.99), (40, 80, 0.9)]
)
def test_critical_value_is_scipys(means: int, freedom: int, confidence: float) -> None:
    """From two launches to forty configs."""
    expected = stats.studentized_range.ppf(confidence, means, freedom)

    assert expected == pytest.approx(range_critical(means, freedom, confidence), rel=1e-6)
