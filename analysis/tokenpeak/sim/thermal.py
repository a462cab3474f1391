"""Temperature of a simulated board, which follows its power slowly, and leakage, which follows the temperature.

A first-order model: the board comes to rest so much above the ambient as its power is of its TDP, and is on the way
there with one time constant. Leakage is what a board draws more for each degree above its idle one.
"""

from math import exp

AMBIENT_C = 28.0
RISE_C = 40.0
"""Above the ambient, at rest, of a board that draws its TDP."""
FOLLOWS_S = 45.0
LEAKAGE_PER_DEGREE = 0.0015
"""Of the power, for each degree: what the ranking assumes of real boards as well (ranking/energy_intervals.py)."""
IDLE_SHARE = 0.12
"""Of its TDP, what a board draws with nothing on it."""


def resting_c(share: float) -> float:
    """Where a board comes to rest that draws this share of its TDP."""
    return AMBIENT_C + RISE_C * share


def after_c(temperature_c: float, share: float, seconds: float) -> float:
    """How warm a board is that has drawn this share of its TDP for some time."""
    rest_c = resting_c(share)
    return rest_c + (temperature_c - rest_c) * exp(-max(0.0, seconds) / FOLLOWS_S)


def leakage_w(power_w: float, temperature_c: float) -> float:
    """What a board draws at a temperature beyond what it would draw when as cool as an idle one."""
    return power_w * LEAKAGE_PER_DEGREE * (temperature_c - resting_c(IDLE_SHARE))
