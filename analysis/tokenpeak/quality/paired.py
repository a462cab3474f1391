"""Paired comparison of right and wrong answers: exact McNemar test, and an interval of the difference."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist

from tokenpeak.records.quality import QualityStatus

LEVEL = 0.01
_CONFIDENCE = 0.99


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Of samples that both answered: how many are right, and the verdict by the change."""

    status: QualityStatus
    reason: str
    samples: int
    right: int
    reference_right: int
    low: float
    high: float
    """Of the change of the share that is right."""


def paired(
    reference: Mapping[tuple[str, str], bool], candidate: Mapping[tuple[str, str], bool], *, margin: float
) -> Paired:
    """The comparison by (task, sample); `margin` is the share of answers that may be lost."""
    shared = reference.keys() & candidate.keys()
    worse = sum(reference[name] and not candidate[name] for name in shared)
    better = sum(candidate[name] and not reference[name] for name in shared)
    n, p = len(shared), mcnemar(worse, better)
    # Half a change more on each side: without it no change at all would have an interval of no width.
    change = (better - worse) / (n + 2)
    spread = sqrt(max(0.0, better + worse + 1 - (better - worse) ** 2 / (n + 2))) / (n + 2)
    half = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * spread
    low, high = change - half, change + half
    right, theirs = sum(candidate[name] for name in shared), sum(reference[name] for name in shared)
    words = (
        f"{right:,} of {n:,} samples are right, {theirs:,} of the reference's; {worse} became wrong and {better} right "
        f"({low:+.1%} to {high:+.1%})"
    )
    if n and p < LEVEL:
        status, why = "fail", f", p = {p:.2g}."
    elif n and low > -margin:
        status, why = "pass", f", less than {margin:.1%} lost."
    else:
        status, why = "unknown", f"; the interval holds a loss of {margin:.1%}." if n else "."
    return Paired(
        status=status,  # type: ignore[arg-type]
        reason=words + why,
        samples=n,
        right=right,
        reference_right=theirs,
        low=low,
        high=high,
    )


def mcnemar(worse: int, better: int) -> float:
    """The probability of at least `worse` of `worse + better` changes being for the worse by chance; exact."""
    n = worse + better
    return float(sum(comb(n, k) for k in range(worse, n + 1)) / 2**n)
