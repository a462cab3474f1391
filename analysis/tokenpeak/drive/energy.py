"""The energy of a run, from what the node recorded while it lasted.

Best first: each GPU's own energy counter (`gpuN_energy_j`, read at both ends of the run); else sampled power
(`gpuN_power_w`, integrated by trapezoids); the same two for the whole node (`node_power_w`) and for the CPU packages
(`cpu_package_energy_j`); else an estimate that says so: the processors' declared power at full load for the length of
the run, which is an upper bound.

What is counted is everything that the boundary drew during the run's measured window, the idle draw of the boards
included: whoever owns the server pays for it whether or not tokens come out. Nothing is subtracted, so runs at a low
rate show more J/token than busy ones; what the boards draw while the engine is up and idle stands in the trial's series
between runs. Between samples values are linear; a window that the samples do not cover to within `_TOLERANCE_S` at both
ends has no measured energy, and none from sampled power that was silent for twice as long in between.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from tokenpeak.records import Energy, Series

_TOLERANCE_S = 2.5
Boundary = Literal["gpu_boards", "cpu_package", "node"]

_BOUNDARIES: tuple[tuple[Boundary, str], ...] = (
    ("gpu_boards", r"gpu\d+"),
    ("node", r"node"),
    ("cpu_package", r"cpu_package\d*"),
)


def run_energy(
    series: Series,
    *,
    from_s: float,
    to_s: float,
    output_tokens: int,
    tdp_w: float | None,
    tdp_boundary: Boundary,
) -> Energy | None:
    """The energy drawn from `from_s` to `to_s` (seconds after the trial's start).

    `tdp_w` is the power of all processors of the boundary at full load; None when nobody knows it, and then a run
    without a sensor has no energy.
    """
    if to_s <= from_s:
        return None
    for boundary, prefix in _BOUNDARIES:
        counters = _matching(series.columns, rf"{prefix}_energy_j")
        powers = _matching(series.columns, rf"{prefix}_power_w")
        # Where only some boards have a counter, their sum would leave the others out.
        whole = len(counters) >= len(powers)
        if whole and (energy_j := _from_counters(series.t_s, counters, from_s, to_s)) is not None:
            return _energy("energy_counter", boundary, energy_j, to_s - from_s, output_tokens)
        if (energy_j := _from_powers(series.t_s, powers, from_s, to_s)) is not None:
            return _energy("sampled_power", boundary, energy_j, to_s - from_s, output_tokens)
    if tdp_w is None:
        return None
    return _energy("estimated_tdp", tdp_boundary, tdp_w * (to_s - from_s), to_s - from_s, output_tokens)


def _energy(
    source: Literal["energy_counter", "sampled_power", "estimated_tdp"],
    boundary: Boundary,
    energy_j: float,
    duration_s: float,
    output_tokens: int,
) -> Energy:
    return Energy(
        source=source,
        boundary=boundary,
        energy_j=energy_j,
        power_w=energy_j / duration_s,
        energy_j_per_output_tok=energy_j / output_tokens if output_tokens else None,
    )


def _matching(columns: Mapping[str, Sequence[float | None]], pattern: str) -> list[Sequence[float | None]]:
    return [column for name, column in columns.items() if re.fullmatch(pattern, name)]


def _samples(
    t_s: Sequence[float], column: Sequence[float | None], from_s: float, to_s: float
) -> list[tuple[float, float]] | None:
    """The samples that are there, in time's order; None when they do not cover the window."""
    there = sorted((t, value) for t, value in zip(t_s, column, strict=True) if value is not None)
    if len(there) < 2 or there[0][0] > from_s + _TOLERANCE_S or there[-1][0] < to_s - _TOLERANCE_S:
        return None
    return there


def _from_counters(
    t_s: Sequence[float], columns: Sequence[Sequence[float | None]], from_s: float, to_s: float
) -> float | None:
    """Joules between both ends, summed over counters; None when one does not cover the window or went backwards."""
    total_j = 0.0
    for column in columns:
        samples = _samples(t_s, column, from_s, to_s)
        if samples is None or any(later[1] < earlier[1] for earlier, later in pairwise(samples)):
            return None
        total_j += _extrapolated(samples, to_s) - _extrapolated(samples, from_s)
    return total_j if columns else None


def _from_powers(
    t_s: Sequence[float], columns: Sequence[Sequence[float | None]], from_s: float, to_s: float
) -> float | None:
    """Watts integrated over the window, summed over sensors; None when one does not cover it, or fell silent in it."""
    total_j = 0.0
    for column in columns:
        samples = _samples(t_s, column, from_s, to_s)
        if samples is None or _widest_gap_s(samples, from_s, to_s) > 2 * _TOLERANCE_S:
            return None
        inside = [(t, value) for t, value in samples if from_s < t < to_s]
        points = [(from_s, _interpolated(samples, from_s)), *inside, (to_s, _interpolated(samples, to_s))]
        total_j += sum((later[0] - earlier[0]) * (later[1] + earlier[1]) / 2 for earlier, later in pairwise(points))
    return total_j if columns else None


def _widest_gap_s(samples: Sequence[tuple[float, float]], from_s: float, to_s: float) -> float:
    """The longest time between two successive samples that lie around some of the window; 0 where none do."""
    around = (later[0] - earlier[0] for earlier, later in pairwise(samples) if later[0] > from_s and earlier[0] < to_s)
    # A run that was broken off may lie beyond the last sample, within the tolerance.
    return max(around, default=0.0)


def _interpolated(samples: Sequence[tuple[float, float]], t_s: float) -> float:
    """The value at `t_s`, linear between samples and level beyond them: right for a power."""
    if t_s <= samples[0][0]:
        return samples[0][1]
    if t_s >= samples[-1][0]:
        return samples[-1][1]
    return _on_line(samples, max(1, bisect_left(samples, (t_s,))), t_s)


def _extrapolated(samples: Sequence[tuple[float, float]], t_s: float) -> float:
    """The value at `t_s`, linear between samples and onward beyond them: right for a counter."""
    return _on_line(samples, min(len(samples) - 1, max(1, bisect_left(samples, (t_s,)))), t_s)


def _on_line(samples: Sequence[tuple[float, float]], index: int, t_s: float) -> float:
    (t0, v0), (t1, v1) = samples[index - 1], samples[index]
    return v0 if t1 == t0 else v0 + (v1 - v0) * (t_s - t0) / (t1 - t0)
