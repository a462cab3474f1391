"""Time of trials: a strip of each node's time, and the series of one trial under its phases.

The series of a trial are geometry only, lines of coordinates that its template draws as SVG: a site of a thousand
trials has a thousand of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from tokenpeak.predict.hardware import GIB
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Column, Figure, Sentence, answer, strong
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.view import SweepView

KINDS = {
    "engine_start_s": "engine start",
    "load_s": "load",
    "production_start_s": "production start",
    "orchestration_s": "TokenPeak itself",
}
COLOURS = {
    "engine_start_s": "var(--phase-engine)",
    "load_s": "var(--phase-load)",
    "production_start_s": "var(--phase-production)",
    "orchestration_s": "var(--phase-own)",
}
DRAWN = 80
"""Most trials of which the strips show the parts; of more, each trial is one bar."""
WHOLE = "trial"
GAP_MIN = 0.25 / 60
WIDTH = 800
HEIGHT = 56
POINTS = 400
"""Most samples that a line is drawn from; more are thinned to each stretch's least and most."""

LANES: tuple[tuple[str, str, str, float], ...] = (
    ("requests_running", "Running", "requests", 1.0),
    ("requests_waiting", "Waiting", "requests", 1.0),
    ("kv_cache_usage", "KV cache", "%", 100.0),
    ("requests_swapped", "Swapped", "requests", 1.0),
    ("cpu_cache_usage", "CPU cache", "%", 100.0),
    ("power_w", "Power", "W", 1.0),
    ("sm_clock_mhz", "SM clock", "MHz", 1.0),
    ("temperature_c", "Temperature", "°C", 1.0),
    ("utilization", "Utilization", "%", 100.0),
    ("vram_used_bytes", "VRAM used", "GiB", 1 / GIB),
)
"""Quantity (or what follows `gpuN_`), title, unit, scale."""


def timed(view: SweepView) -> bool:
    """It is known where the time of trials went; an import's source does not say."""
    return bool(view.trials["duration_s"].is_not_null().any())


def answer_trials(view: SweepView) -> Sentence:
    """How many trials there were, what they took, and how much of it was measuring."""
    trials = view.trials
    if trials.is_empty():
        return answer("No trial has ended yet.")
    if not timed(view):
        return answer(
            strong(f"{number(trials.height)} {'launches' if view.launches_known else 'configs'}"),
            " have published figures; when each was made and how long it took is not known.",
        )
    total = float(trials["duration_s"].sum())
    load = float(trials["load_s"].sum())
    own = float(trials["orchestration_s"].median() or 0.0)  # type: ignore[arg-type]
    failed = trials.filter(pl.col("status") != "ok").height
    words = "all gave a result" if not failed else f"{number(trials.height - failed)} gave a result"
    return answer(
        strong(f"{number(trials.height)} launches"),
        f", of which {words}; they took {number(total / 60, 1)} node-minutes, ",
        strong(f"{load / total:.0%}" if total else "–"),
        f" of it under load. TokenPeak itself took {number(own, 1)} s of the median trial.",
    )


def strips(view: SweepView) -> pl.DataFrame:
    """A row per part of a trial's time on its node: node, trial_id, label, status, cause, kind, x and end (minutes).

    Minutes are after the sweep's start. Of more than DRAWN trials each is one part, a whole trial.
    """
    begin = view.record.started_at
    rows: list[dict[str, Any]] = []
    whole = view.trials.height > DRAWN
    names = {key.removesuffix("_s"): kind for key, kind in KINDS.items()}
    for row in view.trials.filter(pl.col("duration_s") > 0).iter_rows(named=True):
        at_s = (row["started_at"] - begin).total_seconds()
        phases = [
            (names[phase["kind"]], phase["started_s"], phase["duration_s"]) for phase in json.loads(row["phases"])
        ]
        for kind, from_s, length_s in [(WHOLE, 0.0, row["duration_s"])] if whole or not phases else phases:
            begun_min, ended_min = (at_s + from_s) / 60, (at_s + from_s + length_s) / 60
            if rows and _goes_on(rows[-1], row["trial_id"], kind, begun_min):
                rows[-1]["end"] = ended_min
                continue
            rows.append(
                {
                    "node": row["node"],
                    "trial_id": row["trial_id"],
                    "label": row["label"],
                    "status": row["status"],
                    "cause": (row["failure_cause"] or "").replace("_", " "),
                    "kind": kind,
                    "x": begun_min,
                    "end": ended_min,
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def _goes_on(last: dict[str, Any], trial_id: str, kind: str, begun_min: float) -> bool:
    """Whether a part of a trial goes on with the one before it: the same kind, but for a quarter of a second."""
    return (last["trial_id"], last["kind"]) == (trial_id, kind) and abs(last["end"] - begun_min) < GAP_MIN


def strip_chart(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """A strip per node: the parts of its trials over time, failed ones with a mark."""
    kinds = [kind for kind in (*KINDS.values(), WHOLE) if (frame["kind"] == kind).any()]
    colours = {kind: COLOURS[key] for key, kind in KINDS.items()} | {WHOLE: COLOURS["load_s"]}
    short = frame.with_columns(pl.col("x", "end").round(3))
    base = alt.Chart(short).transform_filter(charts.IN_ZOOM)
    y = alt.Y("node:N", title=None, sort="ascending", axis=alt.Axis(labelColor=theme.INK, labelLimit=160))
    x = alt.X("x:Q", title="minutes after the sweep began", scale=alt.Scale(nice=False, zero=False))
    fields = {"trial": "trial_id:N", "config": "label:N", "part": "kind:N", "from (min)": "x:Q", "to (min)": "end:Q"}
    cause = {"cause": "cause:N"} if (frame["cause"] != "").any() else {}
    tip = charts.tooltips({**fields, "status": "status:N", **cause})
    bars = base.mark_bar(height=18, stroke=theme.PAPER, strokeWidth=0.5).encode(
        x=x,
        x2="end:Q",
        y=y,
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=[colours[kind] for kind in kinds]),
            legend=alt.Legend(title=None),
        ),
        tooltip=tip,
    )
    lost = short.filter(pl.col("status") != "ok").unique("trial_id", keep="first", maintain_order=True)
    marks = (
        alt.Chart(lost)
        .transform_filter(charts.IN_ZOOM)
        .mark_point(shape="triangle-down", filled=True, size=70, color=theme.BAD, opacity=1, yOffset=-15)
    )
    layers = [bars, *([marks.encode(x=x, y=y, tooltip=tip)] if lost.height else [])]
    return (
        alt.layer(*layers)
        .add_params(alt.param(name="zoom", value=None))
        .properties(width=theme.WIDTH, height=alt.Step(44))
    )


def node_strips(view: SweepView) -> Figure | None:
    """A strip per node over the sweep's time; None where it is not known when trials ran."""
    frame = strips(view) if timed(view) and not view.record.imported else pl.DataFrame()
    if frame.is_empty():
        return None
    nodes = frame["node"].n_unique()
    lost = frame.filter(pl.col("status") != "ok")["trial_id"].n_unique()
    marked = f" A red mark is a trial without a result; there {'is' if lost == 1 else 'are'} {lost}." if lost else ""
    return figure(
        strip_chart(frame),
        frame.with_columns(seconds=(pl.col("end") - pl.col("x")) * 60),
        {
            "node": "Node",
            "trial_id": "`Trial`",
            "label": "`Config`",
            "kind": "Part",
            "x": Column(key="x", title="From", unit="min", kind="number", digits=2),
            "end": Column(key="end", title="To", unit="min", kind="number", digits=2),
            "seconds": Column(key="seconds", title="Took", unit="s", kind="number", digits=1),
            "status": "Status",
        },
        name="nodes",
        title="What each node did" if nodes > 1 else "What the node did",
        caption=f"{view.trials.height} trials on {nodes} node{'s' if nodes > 1 else ''}.{marked} Where a strip is "
        "empty, the node served production or waited.",
        scope="nodes",
    )


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
