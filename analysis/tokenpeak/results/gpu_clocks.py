"""GPU clocks during a run: whether the driver throttled a GPU, from what the node recorded meanwhile.

Only samples at which a GPU was busy count: an idle one lowers its clock by itself. A load that changes by design
(stages, a replayed trace) changes the clock too, by the power limit, and is not judged by it.
"""

import re

from tokenpeak.records import Reason, RunRecord, Series
from tokenpeak.results.verdict import clock_reason
from tokenpeak.spec.workload import ReplayLoad, StagedLoad

BUSY_UTILIZATION = 0.5


def clock_reasons(run: RunRecord, telemetry: Series, *, from_s: float, to_s: float) -> tuple[Reason, ...]:
    """What speaks against the run, GPU by GPU; its measured window is in seconds after the trial's start."""
    if isinstance(run.level, StagedLoad | ReplayLoad):
        return ()
    found = []
    for name in telemetry.columns:
        if (match := re.fullmatch(r"gpu(\d+)_sm_clock_mhz", name)) is None:
            continue
        clocks, slowed = _busy(telemetry, f"gpu{match[1]}", from_s, to_s)
        if (reason := clock_reason(f"GPU {match[1]}", clocks, slowed)) is not None:
            found.append(reason)
    return tuple(found)


def _busy(telemetry: Series, gpu: str, from_s: float, to_s: float) -> tuple[list[float], list[float]]:
    """The GPU's clocks while it was busy within the window, and whether it was slowed, where reported."""
    none = (None,) * len(telemetry.t_s)
    columns = (telemetry.columns.get(f"{gpu}_{what}", none) for what in ("sm_clock_mhz", "utilization", "slowed"))
    rows = [
        (clock, slowed)
        for t, clock, utilization, slowed in zip(telemetry.t_s, *columns, strict=True)
        if from_s <= t <= to_s and clock is not None and (utilization is None or utilization >= BUSY_UTILIZATION)
    ]
    return [clock for clock, _ in rows], [slowed for _, slowed in rows if slowed is not None]
