"""Agreement of scores, against whole distributions and SciPy's divergence, which knows nothing of top-k."""

import numpy as np
import pytest
from scipy.stats import entropy

from tokenpeak.quality.agreement import TOP_K, coverage, kl_lower_bound, log_ratio, regret, same_prefix, same_top1
from tokenpeak.records.quality import TopK

WORDS = 200
Array = np.ndarray[tuple[int], np.dtype[np.float64]]


def distribution(random: np.random.Generator, sharpness: float) -> Array:
    logits = random.normal(0, sharpness, WORDS)
    weights = np.exp(logits - logits.max())
    whole: Array = weights / weights.sum()
    return whole


def returned(whole: Array, top: int, token: int) -> TopK:
    """What an engine returns of a distribution: the likeliest tokens, and the one that stands there."""
    kept = [*np.argsort(-whole)[:top], token]
    return {int(each): float(np.log(whole[each])) for each in kept}


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5, 3.0])
@pytest.mark.parametrize("sharpness", [0.5, 3.0, 6.0])
def test_bound_is_below_the_divergence(noise: float, sharpness: float) -> None:
    """The bound never exceeds the divergence of the whole distributions."""
    random = np.random.default_rng(1)
    for _ in range(200):
        p = distribution(random, sharpness)
        q = p * np.exp(random.normal(0, noise, WORDS))
        q /= q.sum()
        token = int(random.integers(WORDS))
        bound = kl_lower_bound(returned(p, TOP_K, token), returned(q, TOP_K, token))

        assert 0 <= bound <= entropy(p, q) + 1e-4


def test_bound_is_the_divergence_when_all_is_returned() -> None:
    """With every token returned nothing is hidden."""
    random = np.random.default_rng(2)
    for _ in range(50):
        p, q = distribution(random, 2.0), distribution(random, 2.0)

        assert float(entropy(p, q)) == pytest.approx(
            kl_lower_bound(returned(p, WORDS, 0), returned(q, WORDS, 0)), abs=1e-4
        )


def test_bound_is_close_for_sharp_distributions() -> None:
    """Where the likeliest tokens hold nearly all, the bound finds nine tenths of the divergence."""
    random = np.random.default_rng(3)
    bounds, divergences = [], []
    for _ in range(300):
        p = distribution(random, 5.0)
        q = p * np.exp(random.normal(0, 0.3, WORDS))
        q /= q.sum()
        bounds.append(kl_lower_bound(returned(p, TOP_K, 0), returned(q, TOP_K, 0)))
        divergences.append(entropy(p, q))

    assert sum(bounds) > 0.9 * sum(divergences)


def test_disjoint_tokens_are_far_apart() -> None:
    """Two sharp distributions that return other tokens are not taken for the same."""
    p = np.full(WORDS, 1e-9)
    q = p.copy()
    p[:TOP_K], q[-TOP_K:] = 1 / TOP_K, 1 / TOP_K
    q[:TOP_K] = 1e-7

    assert kl_lower_bound(returned(p / p.sum(), TOP_K, 100), returned(q / q.sum(), TOP_K, 100)) >= 0


def test_figures_of_an_answer() -> None:
    """Top-1, ratio, regret, prefix and coverage of two positions worked out by hand."""
    ours: tuple[TopK, ...] = ({1: np.log(0.7), 2: np.log(0.2)}, {3: np.log(0.5), 4: np.log(0.4)})
    theirs: tuple[TopK, ...] = ({1: np.log(0.35), 2: np.log(0.5)}, {3: np.log(0.5), 4: np.log(0.4)})

    assert [False, True] == [same_top1(*pair) for pair in zip(ours, theirs, strict=True)]
    assert np.log(2) / 2 == pytest.approx(log_ratio((1, 3), ours, theirs))
    assert np.log(0.5 / 0.4) / 2 == pytest.approx(regret((1, 4), ours))
    assert 0.5 == same_prefix((1, 3), (1, 4))
    assert 0.9 == pytest.approx(coverage(ours))
