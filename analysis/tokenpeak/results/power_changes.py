"""What readings miss of a power that changes between them. Pure.

An engine's power goes from one level to another as it prefills and decodes. It is described by its variance and by how
long a level lasts: what is left of a deviation after a time t is e^(-t/lasts). Readings that come every so often and
look for a part of that time miss what changes faster. What they miss is the part of the power's spectrum that folds
onto zero: at each multiple k of the readings' rate, the spectrum 2·variance·lasts ÷ (1 + (2π·k·lasts ÷ every)²) times
sinc²(k · attended).
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LASTS_S = 0.06
"""How long a level lasts where readings do not show it: a prefill of a few thousand tokens, the shorter of the two."""
FEWEST_READINGS = 5
USUAL = 0.1
"""Of the mean power: standard deviation of its changes where a run is too short to show it."""
USUAL_WEIGHT = 4
"""Readings that the usual change counts as."""
MOST = 0.25
"""Of the mean power: no engine changes by more, so more is an error of the readings."""
_MULTIPLES = np.arange(1, 401, dtype=float)
_LEAST_LEFT = 0.01


def missed_j2_per_s(variance_w2: float, lasts_s: float, every_s: float, attended: float) -> float:
    """Variance that each second adds to an energy by readings every `every_s` that look for a share of that time."""
    spectrum = 2 * variance_w2 * lasts_s / (1 + (2 * np.pi * _MULTIPLES * lasts_s / every_s) ** 2)
    return float(2 * np.sum(spectrum * np.sinc(_MULTIPLES * attended) ** 2))


def changes_between(watts: Floats, mean_w: float, apart_s: float) -> tuple[float, float]:
    """The variance, W², and how long a level lasts, s, by readings `apart_s` from each other.

    Readings one apart differ by 1 - left of the variance, those two apart by 1 - left². A few readings may have missed
    what changes the power: they are mixed with the usual change.
    """
    near = np.diff(watts)
    usual_w2 = (1.5 * USUAL * mean_w) ** 2
    semivariance = (float(np.sum(near**2)) / 2 + USUAL_WEIGHT * usual_w2) / (near.size + USUAL_WEIGHT)
    left = float(np.exp(-apart_s / LASTS_S))
    if watts.size >= FEWEST_READINGS and np.any(near):
        far = watts[2:] - watts[:-2]
        seen = float(np.mean(far**2) / np.mean(near**2)) - 1
        left = (far.size * seen + USUAL_WEIGHT * left) / (far.size + USUAL_WEIGHT)
    left = float(np.clip(left, _LEAST_LEFT, 1 - _LEAST_LEFT))
    return semivariance / (1 - left), apart_s / -float(np.log(left))
