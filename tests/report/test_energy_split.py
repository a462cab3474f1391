"""Energy of prefill against decode: what is found of runs whose truth is known, and when nothing is said."""

import numpy as np
import pytest

from tokenpeak.report.energy_split import EnergySplit, energy_split

PROMPT_J, OUTPUT_J = 0.02, 0.3


def runs(ratios: list[float], noise: float, seed: int) -> list[tuple[float, float, float]]:
    """Runs of 10,000 output tokens with so many prompt tokens for each, and energies of the truth with noise."""
    generator = np.random.default_rng(seed)
    return [
        (
            (ratio * 10_000 * PROMPT_J + 10_000 * OUTPUT_J) * float(np.exp(generator.normal(0, noise))),
            ratio * 10_000,
            10_000.0,
        )
        for ratio in ratios
    ]


def test_both_intervals_hold_the_truth() -> None:
    """In 95% of cases, as far as 300 of them show."""
    held = []
    for seed in range(300):
        found = energy_split(runs([1, 4, 16, 64, 1, 4, 16, 64], 0.02, seed))
        assert isinstance(found, EnergySplit)
        held.append(abs(found.prompt_j - PROMPT_J) <= found.prompt_half_j)
        held.append(abs(found.output_j - OUTPUT_J) <= found.output_half_j)

    assert 0.92 <= np.mean(held) <= 0.98


def test_exact_runs_give_the_truth() -> None:
    found = energy_split(runs([1, 4, 16, 64], 0.0, 0))

    assert isinstance(found, EnergySplit)
    assert (PROMPT_J, OUTPUT_J) == pytest.approx((found.prompt_j, found.output_j))


@pytest.mark.parametrize(
    ("ratios", "noise", "words"),
    [
        ([1, 4, 16], 0.0, "has 3"),
        ([4, 4.1, 4, 4.2, 4], 0.02, "about as many prompt tokens"),
        ([1, 1.2, 1.4, 1.6], 0.3, "vary too much"),
    ],
)
def test_what_is_not_known_is_not_said(ratios: list[float], noise: float, words: str) -> None:
    found = energy_split(runs(ratios, noise, 3))

    assert isinstance(found, str)
    assert words in found
