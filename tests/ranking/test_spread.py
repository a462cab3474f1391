"""The spread that configs share, against simulated configs whose spread is known."""

import math

import numpy as np
import pytest

from tokenpeak.ranking.intervals import spreads


def drawn(deviations: np.ndarray, launches: int, draw: np.random.Generator) -> dict[int, list[list[float]]]:
    """Launches of configs of these standard deviations of the log value."""
    return {number: [list(np.exp(draw.normal(3, deviation, launches)))] for number, deviation in enumerate(deviations)}


def test_configs_that_vary_alike_share_their_spread() -> None:
    """Of many configs that vary alike, each spread misses the truth by less than half of what its own launches do."""
    draw = np.random.default_rng(5)
    launches = drawn(np.full(60, 0.05), 3, draw)
    found = spreads(launches)
    own = [np.std(np.log(groups[0]), ddof=1) for groups in launches.values()]

    missed = np.abs(np.log([one.deviation / 0.05 for one in found.values()])).mean()
    missed_alone = np.abs(np.log(np.array(own) / 0.05)).mean()

    assert missed < missed_alone / 2
    assert all(one.freedom > 2 for one in found.values())


def test_configs_that_vary_unlike_keep_their_own() -> None:
    """A config ten times as noisy as the others is seen to be: no spread is borrowed from it, none lent to it."""
    draw = np.random.default_rng(6)
    found = spreads(drawn(np.array([0.01] * 30 + [0.1]), 8, draw))

    assert 0.05 < found[30].deviation < 0.2
    assert max(found[number].deviation for number in range(30)) < 0.02
    assert found[30].freedom < 60


def test_freedom_is_what_the_spread_is_worth() -> None:
    """Over many draws, the moderated variance scatters around the truth as its degrees of freedom say."""
    draw = np.random.default_rng(7)
    ratios, freedoms = [], []
    for _ in range(400):
        true = np.exp(draw.normal(math.log(0.03), 0.4, 8))
        found = spreads(drawn(true, 4, draw))
        ratios += [(found[number].deviation / true[number]) ** 2 for number in range(8)]
        freedoms += [found[number].freedom for number in range(8)]

    assert 1.0 == pytest.approx(np.median(ratios), abs=0.15)
    # The variance of chi-squared ÷ freedom is 2 ÷ freedom.
    assert np.var(np.log(ratios)) < 2.5 * np.mean(2 / np.array(freedoms))


def test_nothing_repeated_is_nothing_known() -> None:
    """Single launches have no spread; a config launched once takes that of the others."""
    assert {} == spreads({"a": [[1.0]], "b": [[2.0]]})
    assert 0.0 == spreads({"a": [[2.0, 2.0]], "b": [[3.0, 3.0]], "c": [[5.0]]})["c"].deviation
