"""Studentized range: the critical value of the largest difference of means in units of a pooled standard error.

By quadrature over the standard deviation's distribution and the normal one. SciPy has it too, in a package that takes
two seconds of processor time to load and a tenth for each value.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, ndtr

WIDEST_Z = 8.5
"""Beyond so many standard deviations the normal density does not count."""
Z_NODES, S_NODES = 160, 64
TOLERANCE = 1e-7


@lru_cache(maxsize=4096)
def range_critical(means: int, freedom: int, confidence: float) -> float:
    """The value that the studentized range of `means` means stays below with this confidence."""
    low, high = 0.0, 1.0
    at_low, at_high = -confidence, _share_below(high, means, freedom) - confidence
    while at_high < 0:
        low, at_low = high, at_high
        high *= 2
        at_high = _share_below(high, means, freedom) - confidence
    # Regula falsi (Illinois): the end that stays has half its weight.
    side = 0
    while high - low > TOLERANCE * high:
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at = _share_below(middle, means, freedom) - confidence
        if abs(at) < TOLERANCE * 1e-2:
            return middle
        if at > 0:
            high, at_high = middle, at
            at_low *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            low, at_low = middle, at
            at_high *= 0.5 if side < 0 else 1.0
            side = -1
    return (low + high) / 2


def _share_below(value: float, means: int, freedom: int) -> float:
    """The probability that the studentized range is below the value."""
    z, weights = _normal_nodes()
    s, s_weights = _deviation_nodes(freedom)
    others = ndtr(z)[None, :] - ndtr(z[None, :] - value * s[:, None])
    return float(means * (s_weights @ (others ** (means - 1) @ weights)))


@lru_cache(maxsize=1)
def _normal_nodes() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(Z_NODES)
    z = WIDEST_Z * nodes
    return z, WIDEST_Z * weights * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


@lru_cache(maxsize=64)
def _deviation_nodes(freedom: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Standard deviations over their true one, and their weights, by quadrature over the probability.

    In a variable t of which the probability is a polynomial that is flat at both ends: there the standard deviation is
    no smooth function of the probability, and equal steps of that are off by a ten-thousandth.
    """
    nodes, weights = np.polynomial.legendre.leggauss(S_NODES)
    t = (nodes + 1) / 2
    above = (1 - t) ** 4 * (1 + 4 * t + 10 * t**2 + 20 * t**3)
    return np.sqrt(chdtri(freedom, above) / freedom), weights / 2 * 140 * t**3 * (1 - t) ** 3
