"""Whether another engine build is faster: intervals against SciPy's own t test, and how often they hold the truth."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from tokenpeak.ranking.upgrade import upgrade


def test_one_config_is_student_s_t_test() -> None:
    """Of one config, the interval is that of SciPy's t test of two samples of equal variance."""
    old, new = (101.0, 99.0, 103.0), (121.0, 118.0, 125.0)
    found = upgrade([(old, new)], higher_is_better=True)
    assert found is not None and found.low is not None and found.high is not None
    reference = stats.ttest_ind(np.log(new), np.log(old)).confidence_interval()

    assert (reference.low, reference.high) == pytest.approx((math.log(found.low), math.log(found.high)))
    assert "faster" == found.outcome


def test_several_configs_launched_once_are_a_paired_test() -> None:
    """Without repeated launches, the interval is that of SciPy's t test of paired values."""
    old, new = (101.0, 55.0, 210.0, 80.0), (99.0, 56.0, 204.0, 82.0)
    found = upgrade([((a,), (b,)) for a, b in zip(old, new, strict=True)], higher_is_better=True)
    assert found is not None and found.low is not None and found.high is not None
    reference = stats.ttest_rel(np.log(new), np.log(old)).confidence_interval()

    assert (reference.low, reference.high) == pytest.approx((math.log(found.low), math.log(found.high)))
    assert "tied" == found.outcome


@pytest.mark.parametrize(("pairs", "launches"), [(1, 3), (4, 2), (6, 1)])
def test_interval_holds_the_truth(pairs: int, launches: int) -> None:
    """In a thousand sweeps, the true ratio lies in 95% of the intervals, and equal builds are tied in 95% of them."""
    draw = np.random.default_rng(7)
    true, held, tied, many = 1.1, 0, 0, 1000
    for _ in range(many):
        level = draw.uniform(3, 6, pairs)
        sides = [np.exp(level[:, None] + draw.normal(0, 0.03, (pairs, launches))) for _ in range(2)]
        given = [(list(old), list(new * true)) for old, new in zip(*sides, strict=True)]
        found = upgrade(given, higher_is_better=True, margin=1e-9)
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= true <= found.high
        same = upgrade([(list(a), list(b)) for a, b in zip(*sides, strict=True)], higher_is_better=True, margin=1e-9)
        tied += same is not None and same.outcome == "tied"
    tolerance = NormalDist().inv_cdf(0.999) * math.sqrt(0.95 * 0.05 / many)

    assert abs(held / many - 0.95) < tolerance
    assert abs(tied / many - 0.95) < tolerance


def test_a_latency_that_grew_is_slower() -> None:
    """Of what is better when it is lower, more is slower; less than the margin is a tie, whatever its interval."""
    old = (0.100, 0.1001, 0.0999)

    for ratio, outcome in ((1.2, "slower"), (0.8, "faster"), (1.01, "tied")):
        found = upgrade([(old, [value * ratio for value in old])], higher_is_better=False, margin=0.02)
        assert found is not None and outcome == found.outcome
