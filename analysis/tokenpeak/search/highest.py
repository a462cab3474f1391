"""The highest value of a flag, such as gpu_memory_utilization, that launches and survives the load, in few launches.

A launch that starts and then runs out of memory under load counts as a failure: what is free when idle is not enough.
Values that work are assumed to lie below those that do not, so each launch halves what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LOW, HIGH, STEP = 0.50, 0.98, 0.01
"""The usual range of gpu_memory_utilization; above 0.98 nothing is left for the driver and the CUDA context."""
FIRST = 0.95


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One launch: `survived` is True when it started and carried the whole load."""

    value: float
    survived: bool


@dataclass(frozen=True, kw_only=True)
class Try:
    """The value to launch next."""

    value: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """The highest value that survived; None when even the lowest failed. `launches` is what it took."""

    value: float | None
    launches: int


def next_highest(
    attempts: Sequence[Attempt], *, low: float = LOW, high: float = HIGH, step: float = STEP, first: float = FIRST
) -> Try | Found:
    """The next value of `low`, `low` + `step`, … `high` to launch, or the answer; a function of the attempts alone.

    A value that failed once is not tried again: what fails at times is too high.
    """
    top = round((high - low) / step)

    def place(value: float) -> int:
        return round((value - low) / step)

    failed = min((place(attempt.value) for attempt in attempts if not attempt.survived), default=top + 1)
    worked = max(
        (place(attempt.value) for attempt in attempts if attempt.survived and place(attempt.value) < failed), default=-1
    )
    if failed - worked <= 1:
        return Found(value=round(low + worked * step, 6) if worked >= 0 else None, launches=len(attempts))
    if not attempts:
        chosen = min(max(place(first), 0), top)
    elif failed > top:
        # Nothing failed yet: the top is the answer as often as not.
        chosen = top
    elif worked < 0:
        # Nothing worked yet: widening steps down find the edge sooner than halves of the whole range.
        chosen = max(0, failed - 2 ** (1 + sum(not attempt.survived for attempt in attempts)))
    else:
        chosen = (failed + worked) // 2
    return Try(value=round(low + chosen * step, 6))
