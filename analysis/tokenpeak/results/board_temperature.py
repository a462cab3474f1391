"""Temperature of the boards at a moment, from what the node recorded."""

import re
from statistics import fmean

from tokenpeak.records import Series

NEAR_S = 2.5
"""A reading this far from the moment still says it: boards are read once a second."""


def board_temperature_c(telemetry: Series, at_s: float) -> float | None:
    """The mean over the boards of each one's reading nearest to `at_s`; None where a board has none near it."""
    found = []
    for name, column in telemetry.columns.items():
        if re.fullmatch(r"gpu\d+_temperature_c", name):
            readings = [
                (abs(t - at_s), value) for t, value in zip(telemetry.t_s, column, strict=True) if value is not None
            ]
            apart_s, value = min(readings, default=(NEAR_S + 1, 0.0))
            if apart_s > NEAR_S:
                return None
            found.append(value)
    return round(fmean(found), 1) if found else None
