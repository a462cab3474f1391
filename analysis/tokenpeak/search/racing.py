"""Ending a trial that cannot win any more, and short runs that screen before long ones decide."""

import math
from collections.abc import Sequence
from statistics import fmean

from tokenpeak.stats.intervals import t_critical, variance
from tokenpeak.workload import LoadLevel

FEWEST_WINDOWS = 5
HOPELESS_CONFIDENCE = 0.998
"""Two-sided; a trial that is ended early for nothing costs more than one that goes on for nothing."""
FEWEST_REQUESTS = 20


def hopeless(windows: Sequence[float], best: float, *, margin: float = 0.02, higher_is_better: bool = True) -> bool:
    """A run is surely worse than `best` by more than the margin, by its values over successive windows of time.

    `windows` are values of the objective, such as tokens per second, in windows after the ramp-up. Windows of a run
    follow each other, so their spread understates the doubt; it is doubled.
    """
    if len(windows) < FEWEST_WINDOWS:
        return False
    half = 2 * t_critical(len(windows) - 1, HOPELESS_CONFIDENCE) * math.sqrt(variance(windows) / len(windows))
    middle = fmean(windows)
    if higher_is_better:
        return middle + half < best * (1 - margin)
    return middle - half > best * (1 + margin)


def shortened(level: LoadLevel, share: float) -> LoadLevel:
    """The load level with only a share of its requests or time, for screening; warm-up and load stay as they are."""
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share:g}")
    if level.requests is not None:
        fewest = min(level.requests, max(FEWEST_REQUESTS, 2 * getattr(level, "concurrency", 0)))
        return level.model_copy(update={"requests": max(fewest, math.ceil(level.requests * share))})
    assert level.duration_s is not None, "a level has requests or a duration"
    return level.model_copy(update={"duration_s": level.duration_s * share})
