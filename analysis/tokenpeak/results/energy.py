"""The energy of a run, from what the node recorded while it lasted.

Best first: each GPU's own energy counter (`gpuN_energy_j`, read at both ends of the run); else sampled power
(`gpuN_power_w`, integrated by trapezoids); the same two for the whole node (`node_power_w`) and for the CPU packages
(`cpu_package_energy_j`), with their memory where it has a counter (`cpu_dram_energy_j`); else an estimate that says so:
the processors' declared power at full load for the length of the run, which is an upper bound.

What is counted is everything that the boundary drew during the run's measured window, the idle draw of the boards
included: whoever owns the server pays for it whether or not tokens come out. Nothing is subtracted, so runs at a low
rate show more J/token than busy ones; what the boards draw while the engine is up and idle stands in the trial's series
between runs.

A measured energy has an interval (energy_estimate). Where that is wider than ±5% the run has no energy figure: it was
too short for its sensor, and the record says what length would do.
"""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tokenpeak.records import Energy, EnergyBoundary, RunRecord, Series, TrialRecord
from tokenpeak.results.energy_estimate import EnergyEstimate, Floats, added, from_counter, from_power
from tokenpeak.results.power_sensor import NODE, PROCESSOR, UNKNOWN, PowerSensor

WIDEST = 0.05
"""Half the interval ÷ the energy at which a run still has an energy figure."""

_BOUNDARIES: tuple[tuple[EnergyBoundary, str], ...] = (
    ("gpu_boards", r"gpu\d+"),
    ("node", r"node"),
    ("cpu_and_dram", r"cpu_(package|dram)"),
    ("cpu_package", r"cpu_package\d*"),
)


def run_energies(
    series: Series,
    *,
    from_s: float,
    to_s: float,
    output_tokens: int,
    tdp_w: float | None,
    tdp_boundary: EnergyBoundary,
    sensor: PowerSensor = UNKNOWN,
) -> tuple[Energy, ...]:
    """The energy drawn from `from_s` to `to_s` (seconds after the trial's start), of the run's own boundary first.

    Each further boundary that something measured follows.

    `tdp_w` is the power of all processors of the boundary at full load; None when nobody knows it, and then a run
    without a sensor has no energy. `sensor` is that of the boards.
    """
    if to_s <= from_s:
        return ()
    t_s = np.array(series.t_s, dtype=float)
    order = np.argsort(t_s, kind="stable")
    t_s = t_s[order]
    measured: dict[EnergyBoundary, Energy] = {}
    for boundary, prefix in _BOUNDARIES:
        if boundary == "cpu_and_dram" and "cpu_dram_energy_j" not in series.columns:
            continue
        if boundary == "cpu_package" and "cpu_and_dram" in measured:
            continue
        own = PROCESSOR if boundary.startswith("cpu") else NODE if boundary == "node" else sensor
        counters = _matching(series, rf"{prefix}_energy_j", order)
        powers = _matching(series, rf"{prefix}_power_w", order)
        # Where only some boards have a counter, their sum would leave the others out.
        by_counter = len(counters) >= len(powers)
        estimate = _sum([from_counter(t_s, column, own, from_s, to_s) for column in counters]) if by_counter else None
        if estimate is not None:
            measured[boundary] = _measured("energy_counter", boundary, estimate, output_tokens)
            continue
        estimate = _sum([from_power(t_s, column, own, from_s, to_s) for column in powers])
        if estimate is not None:
            measured[boundary] = _measured("sampled_power", boundary, estimate, output_tokens)
    if measured or tdp_w is None:
        return tuple(measured.values())
    estimated = Energy(
        source="estimated_tdp",
        boundary=tdp_boundary,
        energy_j=tdp_w * (to_s - from_s),
        power_w=tdp_w,
        energy_j_per_output_tok=tdp_w * (to_s - from_s) / output_tokens if output_tokens else None,
    )
    return (estimated,)


def _sum(estimates: Sequence[EnergyEstimate | None]) -> EnergyEstimate | None:
    """All sensors together; None without one, or where one says nothing."""
    known = [each for each in estimates if each is not None]
    return added(known) if known and len(known) == len(estimates) else None


def _measured(
    source: Literal["energy_counter", "sampled_power"],
    boundary: EnergyBoundary,
    estimate: EnergyEstimate,
    output_tokens: int,
) -> Energy:
    energy_j, margin_j = estimate.energy_j, estimate.margin_j
    is_known = margin_j <= WIDEST * energy_j
    return Energy(
        source=source,
        boundary=boundary,
        energy_j=energy_j if is_known else None,
        energy_low_j=max(0.0, energy_j - margin_j),
        energy_high_j=energy_j + margin_j,
        needed_s=None if is_known else _rounded_up(estimate.needed_s(WIDEST)),
        power_w=energy_j / estimate.duration_s if is_known else None,
        energy_j_per_output_tok=energy_j / output_tokens if is_known and output_tokens else None,
    )


def _rounded_up(seconds: float) -> float | None:
    return float(np.ceil(seconds)) if np.isfinite(seconds) else None


def _matching(series: Series, pattern: str, order: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> list[Floats]:
    """The columns of a pattern in time's order, NaN where a quantity was not sampled."""
    return [
        np.array(column, dtype=float)[order] for name, column in series.columns.items() if re.fullmatch(pattern, name)
    ]


def with_energy_intervals(trial: TrialRecord, sensor: PowerSensor) -> TrialRecord:
    """The trial with an interval for each measured energy that has none and whose readings were kept.

    `sensor` is that of the node's boards. A run that proves too short for its readings loses its figure, as a new one
    would.
    """
    runs = tuple(_estimated_again(run, trial.series, sensor) for run in trial.runs)
    return trial.model_copy(update={"runs": runs})


def _estimated_again(run: RunRecord, series: Series, sensor: PowerSensor) -> RunRecord:
    energy = run.energy
    if energy is None or energy.source == "estimated_tdp" or energy.energy_low_j is not None or run.window_s is None:
        return run
    from_s, to_s = run.window_s
    energies = run_energies(
        series,
        from_s=from_s,
        to_s=to_s,
        output_tokens=run.summary.output_tokens or 0,
        tdp_w=None,
        tdp_boundary=energy.boundary,
        sensor=sensor,
    )
    same = [each for each in energies if (each.boundary, each.source) == (energy.boundary, energy.source)]
    return run.model_copy(update={"energy": same[0]}) if same else run
