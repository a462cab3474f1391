"""A trial's series as small pictures on one time axis: geometry only, which the trial's template draws as SVG.

A site of a thousand trials has a thousand of these, so they are lines of coordinates rather than charts with a
renderer each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tokenpeak.report.blocks.digits import number

WIDTH = 800
HEIGHT = 56
POINTS = 400
"""Most samples that a line is drawn from; more are thinned to each stretch's least and most."""

GIB = 2**30
LANES: tuple[tuple[str, str, str, float], ...] = (
    ("requests_running", "Running", "requests", 1.0),
    ("requests_waiting", "Waiting", "requests", 1.0),
    ("kv_cache_usage", "KV cache", "%", 100.0),
    ("power_w", "Power", "W", 1.0),
    ("sm_clock_mhz", "SM clock", "MHz", 1.0),
    ("temperature_c", "Temperature", "°C", 1.0),
    ("utilization", "Utilization", "%", 100.0),
    ("vram_used_bytes", "VRAM used", "GiB", 1 / GIB),
)
"""Quantity (or what follows `gpuN_`), title, unit, scale."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One quantity: `lines` are SVG point lists, one for each device."""

    title: str
    unit: str
    low: str
    high: str
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A phase or a run on the shared axis: x and width in the picture's units."""

    name: str
    kind: str
    x: float
    width: float
    words: str


@dataclass(frozen=True, kw_only=True)
class TimeAxis:
    """Lanes under the trial's phases and runs; `ticks` are (x, label)."""

    width: int
    height: int
    phases: tuple[Span, ...]
    runs: tuple[Span, ...]
    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]


def time_axis(
    duration_s: float,
    phases: Sequence[tuple[str, str, float, float]],
    runs: Sequence[tuple[str, float, float]],
    series: pl.DataFrame,
) -> TimeAxis:
    """The picture of a trial.

    `phases`: name, kind, start, duration; `runs`: label, start, duration; `series`: quantity, t_s, value.
    """
    end = max([duration_s, 1e-9, *(start + length for _, _, start, length in phases)])

    def x(t_s: float) -> float:
        return round(min(max(t_s / end, 0.0), 1.0) * WIDTH, 1)

    def span(name: str, kind: str, start: float, length: float) -> Span:
        return Span(
            name=name,
            kind=kind,
            x=x(start),
            width=max(0.5, round(x(start + length) - x(start), 1)),
            words=f"{name}: {number(length)} s from {number(start)} s",
        )

    parts = {str(key[0]): part for key, part in series.drop_nulls("value").group_by("quantity", maintain_order=True)}
    lanes = []
    for quantity, title, unit, scale in LANES:
        names = [
            name
            for name in parts
            if name == quantity or (name.startswith("gpu") and name.partition("_")[2] == quantity)
        ]
        if names:
            lanes.append(_lane([parts[name] for name in names], title, unit, scale, end))
    return TimeAxis(
        width=WIDTH,
        height=HEIGHT,
        phases=tuple(span(name, kind, start, length) for name, kind, start, length in phases),
        runs=tuple(span(label, "run", start, length) for label, start, length in runs),
        lanes=tuple(lanes),
        ticks=tuple((x(at), f"{at:g} s") for at in _ticks(end)),
    )


def _ticks(end: float) -> list[float]:
    step = next(
        (step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200) if end / step <= 9), 14400
    )
    return [float(at) for at in range(0, int(end) + 1, step)]


def _lane(devices: Sequence[pl.DataFrame], title: str, unit: str, scale: float, end: float) -> Lane:
    # NumPy's, and not Polars's: of sixty samples the call is all that an operation takes.
    values = np.concatenate([device["value"].to_numpy() for device in devices]) * scale
    high = float(values.max())
    if unit == "GiB" and high < 1:
        return _lane(devices, title, "MiB", scale * 2**10, end)
    top = high or 1.0
    lines = []
    for device in map(_thinned, devices):
        xs = np.round(np.clip(device["t_s"].to_numpy(), 0, end) * (1 / end) * WIDTH, 1)
        ys = np.round(HEIGHT - 2 - device["value"].to_numpy() * scale * (1 / top) * (HEIGHT - 6), 1)
        lines.append(" ".join(f"{a:g},{b:g}" for a, b in zip(xs.tolist(), ys.tolist(), strict=True)))
    return Lane(title=title, unit=unit, low=number(float(values.min())), high=number(high), lines=tuple(lines))


def _thinned(device: pl.DataFrame) -> pl.DataFrame:
    if device.height <= POINTS:
        return device
    stretch = device.with_columns(part=pl.int_range(pl.len()) * (POINTS // 2) // device.height)
    ends = stretch.group_by("part", maintain_order=True).agg(
        pl.col("t_s", "value").sort_by("value").first().name.suffix("_low"),
        pl.col("t_s", "value").sort_by("value").last().name.suffix("_high"),
    )
    low = ends.select(t_s="t_s_low", value="value_low")
    high = ends.select(t_s="t_s_high", value="value_high")
    return pl.concat([low, high]).sort("t_s")
