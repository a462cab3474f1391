"""Agreement of scores, against whole distributions and SciPy's divergence, which knows nothing of top-k."""

import numpy as np
import pytest
from scipy.stats import entropy

from tokenpeak.quality.answers import (
    TOP_K,
    UNLIKELY,
    answer_agreement,
    coverage,
    kl_lower_bound,
    same_top1,
    text_agreement,
)
from tokenpeak.records.quality import GeneratedAnswer, ScoredText, TopK

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
    logs = {int(each): float(np.log(whole[each])) for each in kept}
    return {each: value for each, value in logs.items() if value >= UNLIKELY or each == token or top == WORDS}


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


OURS: tuple[TopK, ...] = ({1: np.log(0.7), 2: np.log(0.2)}, {3: np.log(0.5), 4: np.log(0.4)})
THEIRS: tuple[TopK, ...] = ({1: np.log(0.35), 2: np.log(0.5)}, {3: np.log(0.5), 4: np.log(0.4)})


def answer(tokens: tuple[int, ...], scores: tuple[TopK, ...]) -> GeneratedAnswer:
    return GeneratedAnswer(
        name="a", kind="copying", prompt_tokens=3, tokens=tokens, scores=scores, text="x", right=True
    )


def test_figures_of_a_text() -> None:
    """Top-1, log ratio, divergence and coverage of two places worked out by hand; the first token is not scored."""
    found = text_agreement(
        ScoredText(name="t", tokens=(9, 1, 3), scores=OURS), ScoredText(name="t", tokens=(9, 1, 3), scores=THEIRS)
    )

    assert [False, True] == [same_top1(*pair) for pair in zip(OURS, THEIRS, strict=True)]
    assert 0.5 == found.top1
    assert np.log(2) / 2 == pytest.approx(found.log_ratio_nats)
    assert (0.7 * np.log(2) + 0.2 * np.log(0.4) + 0.1 * np.log(0.1 / 0.15)) / 2 == pytest.approx(found.kl_nats)
    assert 0.9 == pytest.approx(coverage(OURS))


def test_answers_are_compared_up_to_the_first_difference() -> None:
    """What follows another token has another context, and is not compared."""
    found = answer_agreement(answer((1, 3), OURS), answer((2, 4), (THEIRS[0], {4: 0.0})))
    same = answer_agreement(answer((1, 3), OURS), answer((1, 3), OURS))

    assert kl_lower_bound(OURS[0], THEIRS[0]) == pytest.approx(found.kl_nats)
    assert not found.is_same
    assert (0.0, 0.0, True) == (same.regret_nats, same.kl_nats, same.is_same)


def test_wrong_draft_shows_as_regret() -> None:
    """A token that the launch chose against its own scores, as a drafter without verification would, is regretted."""
    found = answer_agreement(answer((1, 3), OURS), answer((1, 4), OURS))

    assert 0.0 == found.kl_nats
    assert np.log(0.5 / 0.4) / 2 == pytest.approx(found.regret_nats)
