"""Interval of a mean over prompts: a bootstrap of Student's t, within kinds.

Divergences are skewed: a few prompts have most of one. The percentile bootstrap then puts the upper end too low (of 80
lognormal values with a log spread of 1.2, one in twenty 99% intervals lies below the truth; in Student's form one in
fifty), and an upper end that is too low passes what is damaged.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokenpeak.records.quality import QualityInterval

RESAMPLES = 4000
CONFIDENCE = 0.99

Floats = NDArray[np.float64]


def interval(
    values: Sequence[float], kinds: Sequence[str], weights: Mapping[str, float] | None = None
) -> QualityInterval:
    """The mean of the kinds' means with its interval; a kind weighs as given, else by its number.

    Values are resampled within their kind, as a set of prompts holds a fixed number of each. The same values give the
    same interval.
    """
    array, labels = np.asarray(values, dtype=float), np.asarray(kinds)
    own = {str(kind): array[labels == kind] for kind in sorted(set(kinds))}
    weigh = {kind: weights[kind] if weights else float(len(each)) for kind, each in own.items()}
    total = sum(weigh.values())
    mean, error = 0.0, 0.0
    means, errors = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for place, (kind, each) in enumerate(own.items()):
        share, count = weigh[kind] / total, len(each)
        middle = float(each.mean())
        off = each - middle
        drawn = _drawn(count, place)
        moved = drawn @ off / count
        mean += share * middle
        means += share * (middle + moved)
        if count > 1:
            error += share**2 * float(off @ off) / (count - 1) / count
            errors += share**2 * np.maximum(0.0, drawn @ off**2 / count - moved**2) / (count - 1)
    # A resample of one value over and over has no error of its own: it says nothing, but for the mean that all share.
    usable = errors > 1e-6 * error
    if error <= 0 or not usable.any():
        return QualityInterval(estimate=mean, low=mean, high=mean)
    students = (means[usable] - mean) / np.sqrt(errors[usable])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(students, [tail, 1 - tail])
    half = float(np.sqrt(error))
    return QualityInterval(estimate=mean, low=mean - float(high) * half, high=mean - float(low) * half)


def few_values(values: Sequence[float]) -> QualityInterval:
    """The mean of some ten values, by percentiles: of skewed values the lower end is rather too low."""
    array = np.asarray(values, dtype=float)
    means = _drawn(len(array), 0) @ array / len(array)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return QualityInterval(estimate=float(array.mean()), low=float(low), high=float(high))


@lru_cache(maxsize=64)
def _drawn(count: int, place: int) -> Floats:
    """(RESAMPLES, count): how often each of so many values is drawn; the same for the same place among kinds."""
    random = np.random.default_rng((count, place))
    drawn: Floats = random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES).astype(float)
    return drawn
