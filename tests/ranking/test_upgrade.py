"""Whether another engine build is faster: intervals against SciPy's own t test, and how often they hold the truth."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from tokenpeak.ranking.intervals import Spread
from tokenpeak.ranking.upgrade import Compared, changes, of_each, smallest_change, upgrade


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


def compared(old: list[float], new: list[float], figure: str = "figure") -> Compared:
    """A comparison of what is better when it is higher."""
    return Compared(
        figure=figure,
        old=old,
        new=new,
        higher_is_better=True,
        old_nodes=["node"] * len(old),
        new_nodes=["node"] * len(new),
    )


def test_each_interval_is_the_t_test_at_the_family_s_confidence() -> None:
    """Where its figure has no other config, an interval is SciPy's, at 1 − 5% ÷ the number of comparisons."""
    given = [
        compared([10.0, 11.0, 10.4], [9.0, 9.5, 9.2], "a"),
        compared([5.0, 5.2, 5.1, 5.3], [5.0, 5.3], "b"),
        compared([5.0, 5.2], [7.0], "c"),
    ]

    found = changes(given)

    for one, change in list(zip(given, found, strict=True))[:2]:
        test = stats.ttest_ind(np.log(one.new), np.log(one.old))
        low, high = np.exp(test.confidence_interval(1 - 0.05 / 2))
        assert (low, high) == pytest.approx((change.low, change.high))
    assert 0.975 == of_each(2)


def test_launches_that_happen_to_be_alike_take_the_figure_s_spread() -> None:
    """Of configs that vary by 5%, one whose few launches came out equal is not called changed for a shift of 5%."""
    draw = np.random.default_rng(8)
    others = [compared(*(list(np.exp(draw.normal(0, 0.05, 4))) for _ in range(2))) for _ in range(20)]
    alike = compared([1.0, 1.01, 1.0, 1.01], [0.95, 0.96, 0.95, 0.96])

    alone, among = changes([alike])[0], changes([*others, alike])[-1]

    assert ("slower", "tied") == (alone.outcome, among.outcome)
    assert among.low is not None and alone.low is not None and among.low < alone.low


@pytest.mark.parametrize(("old", "new", "comparisons", "margin"), [(4, 4, 1, 0.02), (3, 6, 12, 0.02), (8, 8, 3, 0.1)])
def test_a_change_of_the_stated_size_is_found_in_95_percent(
    old: int, new: int, comparisons: int, margin: float
) -> None:
    """With the spread known exactly, the stated change is found in 95 to 97% of simulated comparisons."""
    draw = np.random.default_rng([9, old, new])
    deviation, many = 0.03, 4000
    change = smallest_change(Spread(deviation=deviation, freedom=1e6), old, new, comparisons=comparisons, margin=margin)
    assert change is not None
    sides = [draw.normal(0, deviation, (many, count)) for count in (old, new)]
    effect = sides[1].mean(axis=1) - change - sides[0].mean(axis=1)
    squares = sum(side.var(axis=1, ddof=1) * (side.shape[1] - 1) for side in sides)
    error = np.sqrt(squares / (old + new - 2) * (1 / old + 1 / new))
    critical = stats.t.ppf(1 - 0.025 / comparisons, old + new - 2)
    found = (effect < -critical * error) & (effect < -np.log1p(margin))

    assert 0.945 < found.mean() < 0.98
