"""Readings of a node's boards around a run: throttled clocks, temperature at its start, and idle power.

Only clocks at which a GPU was busy count: an idle one lowers its clock by itself. A load that changes by design
(stages, a replayed trace) changes the clock too, by the power limit, and is not judged by it.
"""

import re
from collections.abc import Iterable
from statistics import fmean

from tokenpeak.records import IdlePower, Phase, Reason, RunRecord, Series
from tokenpeak.results.energy import run_energies
from tokenpeak.results.power_sensor import PowerSensor
from tokenpeak.results.verdict import clock_reason
from tokenpeak.spec.load import ReplayLoad, StagedLoad

BUSY_UTILIZATION = 0.5


def clock_reasons(run: RunRecord, telemetry: Series, *, from_s: float, to_s: float) -> tuple[Reason, ...]:
    """Reasons against the run, GPU by GPU; its measured window is in seconds after the trial's start."""
    if isinstance(run.level, StagedLoad | ReplayLoad):
        return ()
    reasons = []
    for name in telemetry.columns:
        if (match := re.fullmatch(r"gpu(\d+)_sm_clock_mhz", name)) is None:
            continue
        clocks, slowed = _busy(telemetry, f"gpu{match[1]}", from_s, to_s)
        if (reason := clock_reason(f"GPU {match[1]}", clocks, slowed)) is not None:
            reasons.append(reason)
    return tuple(reasons)


def _busy(telemetry: Series, gpu: str, from_s: float, to_s: float) -> tuple[list[float], list[float]]:
    """The GPU's clocks while it was busy within the window, and whether it was slowed, where reported."""
    none = (None,) * len(telemetry.t_s)
    columns = (
        telemetry.columns.get(f"{gpu}_{quantity}", none) for quantity in ("sm_clock_mhz", "utilization", "slowed")
    )
    rows = [
        (clock, slowed)
        for t, clock, utilization, slowed in zip(telemetry.t_s, *columns, strict=True)
        if from_s <= t <= to_s and clock is not None and (utilization is None or utilization >= BUSY_UTILIZATION)
    ]
    return [clock for clock, _ in rows], [slowed for _, slowed in rows if slowed is not None]


NEAR_S = 2.5
"""A reading this far from the moment still says it: boards are read once a second."""


def board_temperature_c(telemetry: Series, at_s: float) -> float | None:
    """The mean over the boards of each one's reading nearest to `at_s`; None where a board has none near it."""
    temperatures = []
    for name, column in telemetry.columns.items():
        if re.fullmatch(r"gpu\d+_temperature_c", name):
            readings = [
                (abs(t - at_s), value) for t, value in zip(telemetry.t_s, column, strict=True) if value is not None
            ]
            apart_s, value = min(readings, default=(NEAR_S + 1, 0.0))
            if apart_s > NEAR_S:
                return None
            temperatures.append(value)
    return round(fmean(temperatures), 1) if temperatures else None


ASKED_S = 4.0
"""How long a node is left idle before its first engine of a sweep."""
SETTLES_S = 1.2
"""Of that, what the sampler's start and a board's average over a second take."""
PHASE = "idle_power"


def idle_power(telemetry: Series, phases: Iterable[Phase], sensor: PowerSensor) -> tuple[IdlePower, ...]:
    """The mean power of each boundary in the idle phase, with its interval; none where nothing measured it."""
    span = next((phase for phase in phases if phase.name == PHASE), None)
    if span is None:
        return ()
    from_s, to_s = span.started_s + SETTLES_S, span.started_s + span.duration_s
    energies = run_energies(
        telemetry, from_s=from_s, to_s=to_s, output_tokens=0, tdp_w=None, tdp_boundary="node", sensor=sensor
    )
    return tuple(
        IdlePower(
            boundary=each.boundary,
            power_w=(each.energy_low_j + each.energy_high_j) / 2 / (to_s - from_s),
            low_w=each.energy_low_j / (to_s - from_s),
            high_w=each.energy_high_j / (to_s - from_s),
        )
        for each in energies
        if each.energy_low_j is not None and each.energy_high_j is not None
    )
