"""Confidence interval of a percentile of requests that waited in one queue. Pure.

Of independent values the order statistics give it: how many of n lie below the true percentile is binomial. Values of
one queue resemble their neighbours, so n values are worth fewer: the variance of the share below the percentile between
stretches of the run, against the binomial one, says how many.
"""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

CONFIDENCE = 0.95
STRETCHES = 8
FEWEST_BEYOND = 2
"""Values beyond the percentile in each stretch, on average, from which on stretches can be compared."""


def percentile_interval(
    values: Numbers, share: float, *, confidence: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """Both ends of the interval of a percentile, `share` as 0.95, of values in the order of their requests.

    None: that end lies beyond what so few values show.
    """
    from scipy.stats import binom  # most of a second, which a load client has after its run and not before

    number = int(values.size)
    if not number:
        return None, None
    # Few values beyond the percentile do not show how alike they are; the middle ones do, and are more so.
    each = min(1.0, _independence(values, share, confidence), _independence(values, 0.5, confidence))
    worth = max(1, round(number * each))
    tail = (1 - confidence) / 2
    below = float(binom.ppf(tail, worth, share)) / worth
    above = (float(binom.ppf(1 - tail, worth, share)) + 1) / worth
    ordered = np.sort(values)
    low = float(ordered[max(0, int(np.floor(below * number)) - 1)]) if below > 0 else None
    high = float(ordered[min(number, int(np.ceil(above * number))) - 1]) if above <= 1 else None
    return low, high


def _independence(values: Numbers, share: float, confidence: float) -> float:
    """How many independent values each of these is worth, at most 1."""
    number = values.size
    stretches = min(STRETCHES, int(number * min(share, 1 - share) / FEWEST_BEYOND))
    if stretches < 4:
        return 1.0
    below = values <= np.quantile(values, share)
    means = np.array([part.mean() for part in np.array_split(below, stretches)])
    variance = float(means.var(ddof=1)) / stretches
    # The variance is itself known by few stretches only.
    tail = (1 + confidence) / 2
    from scipy.special import stdtrit  # half a second, which reading an archive does not spend

    wider = float(stdtrit(stretches - 1, tail) / stdtrit(1e6, tail)) ** 2
    binomial = share * (1 - share) / number
    return binomial / (variance * wider) if variance > 0 else 1.0
