"""Steady window of a closed loop: the part of a run between its ramp and its drain, over which throughput counts.

A loop that holds N requests in flight begins with N prompts at once, and ends with fewer and fewer. Both are of the
run's making: a settled loop shows neither. The ramp lasts until N requests have ended and one more ends. That is longer
than until N were sent: the burst of prompts is prefilled together, which a settled loop never does, and until each slot
has had one request their phases are those of the burst. The drain begins at the first request that ends and is not
replaced.

Requests of equal length stay together in waves, so the rate rises and falls with them, and a window that ends within
a wave says what part of it was caught. The window therefore holds whole waves: it begins and ends with a request's end,
and N, 2 N, 3 N … requests end in it. Against an engine played step by step, whose rate is known from a run of sixty
waves, this is within 0.3% for equal lengths at any number of waves, and without bias beyond 2% for mixed ones from six
waves on; tests/loadgen/test_closed_window.py has the figures. Pure.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.ranking.intervals import requests_to_assure, share
from tokenpeak.spec.load import FEWEST_WAVES, AnyLevel, ClosedLoad
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import AnyWorkload, ConversationWorkload, DatasetWorkload

Numbers = NDArray[np.float64]

FULL_SHARE = 0.9
"""Of the intended requests in flight, how many count as all: between an answer's end and the next request's first byte
a slot is empty, and load processes do not send their last requests at one moment."""


@dataclass(frozen=True, kw_only=True)
class SteadyWindow:
    """From the end of a request to that of another, in seconds of the run's clock; N × `waves` requests end in it."""

    from_s: float
    to_s: float
    waves: int


def held_concurrency(level: AnyLevel, workload: AnyWorkload) -> int | None:
    """The number in flight that the load holds throughout; None where it is meant to change, or users think."""
    if not isinstance(level, ClosedLoad):
        return None
    thinks = isinstance(workload, ConversationWorkload | DatasetWorkload) and workload.think_time_s > 0
    return None if thinks else level.concurrency


def steady_window(sent_s: Numbers, ended_s: Numbers, *, concurrency: int, begin_s: float) -> SteadyWindow | None:
    """The window of requests sent and ended at these moments, warm-up included; one that never ended well is NaN.

    It lies after `begin_s`, when the first measured request was due. None: it would not hold one wave.
    """
    ends = np.sort(ended_s[np.isfinite(ended_s)])
    full_until = _full_until(sent_s, ended_s, concurrency)
    if full_until is None:
        return None
    unreplaced = ends[ends > sent_s.max()]
    limit = min(full_until, float(unreplaced[0])) if unreplaced.size else full_until
    first = max(concurrency, int(np.searchsorted(ends, begin_s, side="right")))
    waves = (int(np.searchsorted(ends, limit, side="right")) - 1 - first) // concurrency
    if waves < 1:
        return None
    from_s, to_s = float(ends[first]), float(ends[first + waves * concurrency])
    return SteadyWindow(from_s=from_s, to_s=to_s, waves=waves) if to_s > from_s else None


def _full_until(sent_s: Numbers, ended_s: Numbers, concurrency: int) -> float | None:
    """When fewer than the intended number were in flight for good; None: they never were."""
    # When a failed request ended is not known: it counts as never in flight.
    ends = np.where(np.isfinite(ended_s), ended_s, sent_s)
    moments = np.concatenate([sent_s, ends])
    steps = np.concatenate([np.ones(sent_s.size), -np.ones(ends.size)])
    order = np.lexsort((-steps, moments))
    full = np.flatnonzero(np.cumsum(steps[order]) >= np.ceil(FULL_SHARE * concurrency))
    return float(moments[order][full[-1] + 1]) if full.size else None


def waves_of(requests: int, level: ClosedLoad) -> int:
    """Waves that the steady window of so many measured requests would hold."""
    left = requests + level.warmup_requests - level.concurrency - _first(level)
    return max(0, left // level.concurrency)


def closed_loop_requests(level: ClosedLoad) -> int:
    """The fewest measured requests whose steady window holds `FEWEST_WAVES`."""
    return (FEWEST_WAVES + 1) * level.concurrency + _first(level) - level.warmup_requests


def _first(level: ClosedLoad) -> int:
    """Requests that end before the window begins: as many as are in flight, and those of warm-up."""
    return max(level.concurrency, level.warmup_requests - level.concurrency + 1)


def short_closed_loops(spec: SweepSpec) -> list[str]:
    """What is too short for a steady window, or for the SLO's percentiles, and what to write; levels by time left out.

    How many requests a level by time sends depends on the config.
    """
    assured = {percentile: requests_to_assure(share(percentile)) for _, percentile, _ in spec.slo.limits()}
    hints = []
    for plan in spec.workloads:
        for level in plan.levels:
            if not isinstance(level, ClosedLoad) or level.requests is None:
                continue
            where = f"workload {plan.workload.name!r}, level {level.label}: {level.requests} requests"
            needed = max(closed_loop_requests(level), *assured.values(), 0)
            steady = waves_of(level.requests, level)
            if steady < FEWEST_WAVES and held_concurrency(level, plan.workload) is not None:
                hints.append(
                    f"{where} leave {steady or 'no'} wave{'' if steady == 1 else 's'} of {level.concurrency} between "
                    f"ramp and drain, and throughput needs {FEWEST_WAVES}. Set requests: {needed}"
                )
            for percentile, least in assured.items():
                if level.requests < least:
                    hints.append(
                        f"{where} are too few to assure the SLO's {percentile} with 95% confidence. "
                        f"Set requests: {needed}"
                    )
    return hints
