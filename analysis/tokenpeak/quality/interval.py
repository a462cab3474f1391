"""Interval of a mean over prompts: a bootstrap of Student's t, within kinds.

Divergences are skewed: a few prompts have most of one. The percentile bootstrap then puts the upper end too low (of 80
lognormal values with a log spread of 1.2, one in twenty 99% intervals lies below the truth; in Student's form one in
fifty), and an upper end that is too low passes what is damaged.
"""

from collections.abc import Mapping, Sequence

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
    random = np.random.default_rng(0)
    mean, error = 0.0, 0.0
    means, errors = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for kind, each in own.items():
        share = weigh[kind] / total
        drawn = random.choice(each, size=(RESAMPLES, len(each)))
        mean += share * float(each.mean())
        error += share**2 * float(_squared_error(each[None, :])[0])
        means += share * drawn.mean(axis=1)
        errors += share**2 * _squared_error(drawn)
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
    means = np.random.default_rng(0).choice(array, size=(RESAMPLES, len(array))).mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return QualityInterval(estimate=float(array.mean()), low=float(low), high=float(high))


def _squared_error(rows: Floats) -> Floats:
    """(rows,): the squared standard error of each row's mean; 0 of a single value."""
    count = rows.shape[1]
    found: Floats = rows.var(axis=1, ddof=1) / count if count > 1 else np.zeros(len(rows))
    return found
