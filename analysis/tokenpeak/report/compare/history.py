"""The history of a spec: the best of each of its sweeps on one kind of hardware, by date."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.paths import slug
from tokenpeak.ranking.upgrade import Outcome, shown
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Column, Figure, Table, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.ranking.standings import choices, rank
from tokenpeak.report.view import SweepView

VERDICTS: dict[Outcome, str] = {
    "faster": "better",
    "slower": "worse",
    "tied": "not distinguishable",
    "not known": "not known",
}
"""What a history calls a change."""
LEAST_SPAN = 0.1
"""What the axis of values spans to either side of their median at least, as a share: noise does not fill it."""


def best_of(view: SweepView) -> list[dict[str, Any]]:
    """The best value that may be run of each kind of hardware of a sweep."""
    rows = []
    for hardware in view.hardware:
        best = rank(view, hardware).best
        if best is not None:
            rows.append(
                {
                    "key": (
                        view.record.name,
                        view.record.inventory,
                        hardware,
                        view.model_name,
                        view.spec.objective.metric,
                        view.objective_place,
                        view.slo_words,
                    ),
                    "sweep_id": view.sweep_id,
                    "date": view.record.started_at.isoformat(),
                    "hardware": hardware,
                    "config": choices(view, best),
                    "value": best["shown"],
                    "low": best["low"],
                    "high": best["high"],
                    "unit": view.metric.unit,
                    "higher": view.higher_is_better,
                    "margin": view.spec.search.margin,
                    "n": best["n"],
                    "simulated": view.record.simulated,
                }
            )
    return rows


def trend(best: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[Figure, Table]]:
    """Sweeps of one spec on one kind of hardware by date: a figure and its table for each that has more than one.

    `best` are the rows of each sweep, oldest sweep first. A change is a regression or a gain where `upgrade.shown` says
    so of the interval of both.
    """
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in (row for rows in best for row in rows):
        dated = {**row, "date": datetime.fromisoformat(row["date"])}
        groups.setdefault(tuple(row["key"]), []).append(dated)
    return [_history(rows) for rows in groups.values() if len(rows) > 1]


def _history(rows: Sequence[dict[str, Any]]) -> tuple[Figure, Table]:
    """One spec on one kind of hardware over its sweeps, oldest first."""
    changes = [_change(before, row) for before, row in zip([None, *rows[:-1]], rows, strict=True)]
    name, inventory, hardware, model, _, place, _ = rows[0]["key"]
    unit = rows[0]["unit"]
    frame = pl.DataFrame(
        [
            {key: row[key] for key in ("sweep_id", "date", "config", "value", "low", "high")} | change
            for row, change in zip(rows, changes, strict=True)
        ],
        infer_schema_length=None,
        schema_overrides={"low": pl.Float64, "high": pl.Float64, "change": pl.Float64},
    ).with_columns(href=pl.format("{}/index.html", "sweep_id"), day=pl.col("date").dt.strftime("%Y-%m-%d %H:%M"))
    slugged = slug("-".join(rows[0]["key"]))
    worse = int((frame["verdict"] == "worse").sum())
    several, one = frame["config"].n_unique() > 1, frame["config"][0]
    without = "" if frame["low"].is_not_null().any() else " Too few launches for intervals."
    simulated = " Simulated." if all(row["simulated"] for row in rows) else ""
    found = figure(
        _dates(frame, unit),
        frame,
        {"sweep_id": "`Sweep`", "day": "Measured", "value": f"Best ({unit})", "low": "95% low", "high": "95% high"},
        name=f"history-{slugged}",
        title=f"{model} on {hardware}",
        caption=f"{name} of inventory {inventory}, best config at {place}{'' if several else f': {one}'}. "
        f"{worse} regression{'' if worse == 1 else 's'} beyond noise. The axis shows at least "
        f"±{LEAST_SPAN:.0%} around the median.{without}{simulated}",
        span="narrow",
    )
    bounds = [
        None if low is None or high is None else f"{number(low)} to {number(high)}"
        for low, high in frame.select("low", "high").iter_rows()
    ]
    return found, table(
        frame.with_columns(interval=pl.Series(bounds, dtype=pl.String)).reverse(),
        [
            Column(key="day", title="Measured", kind="code"),
            Column(key="value", title="Best", unit=unit, kind="number"),
            Column(key="interval", title="95% interval", unit=unit, hidden=not any(bounds)),
            Column(key="change", title="Change", unit="%", kind="number", digits=1, signed=True),
            Column(key="verdict", title="Verdict", kind="state"),
            *([Column(key="config", title="Best config", kind="code")] if several else []),
        ],
        name=f"history-table-{slugged}",
        title=f"Sweeps of {name} on {hardware}",
        hrefs={"day": "href"},
        span="wide",
    )


def _dates(frame: pl.DataFrame, unit: str) -> alt.TopLevelMixin:
    """The best value over dates with its interval; a regression in the colour of what is bad, a gain in its own."""
    drawn = frame.select("date", "value", "low", "high", "verdict", "sweep_id")
    apart = frame["date"][-1] - frame["date"][0]
    spoken = "%d %b %Y" if apart > timedelta(days=300) else "%d %b" if apart > timedelta(days=5) else "%d %b %H:%M"
    x = alt.X("date:T", title=None, scale=alt.Scale(padding=12), axis=alt.Axis(tickCount=4, format=spoken))
    middle = float(frame["value"].median() or 0.0)  # type: ignore[arg-type]
    ends = [value for name in ("value", "low", "high") for value in frame[name].drop_nulls()]
    domain = [min(*ends, middle * (1 - LEAST_SPAN)), max(*ends, middle * (1 + LEAST_SPAN))]
    y = alt.Y("value:Q", title=unit, scale=alt.Scale(domain=domain, nice=True), axis=alt.Axis(tickCount=5))
    base = alt.Chart(drawn).encode(x=x)
    names = ["first", "not known", "not distinguishable", "better", "worse"]
    colour = alt.Color(
        "verdict:N",
        legend=None,
        scale=alt.Scale(domain=names, range=[*[theme.QUIET] * 3, theme.ACCENT, theme.BAD]),
    )
    shape = alt.Shape(
        "verdict:N",
        legend=None,
        scale=alt.Scale(domain=names, range=[*["circle"] * 3, "triangle-up", "triangle-down"]),
    )
    bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, color=theme.QUIET)
    line = base.mark_line(color=theme.FAINT, **charts.joined(frame.height)).encode(y=y)
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(y=y, color=colour, shape=shape)
    words = (
        base.transform_filter("datum.verdict === 'worse'")
        .mark_text(dy=18, fontSize=11, color=theme.BAD, text="regression")
        .encode(y=y)
    )
    layers = [line, bars.encode(y="low:Q", y2="high:Q"), dots, words]
    return alt.layer(*layers, width=theme.HALF, height=190)


def _change(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """By how much, in percent, the best differs from that of the sweep before, and whether that is more than noise."""
    if before is None:
        return {"change": None, "verdict": "first"}
    halves = [math.log(row["high"] / row["low"]) / 2 for row in (before, now) if row["low"] is not None]
    change = shown(
        math.log(now["value"] / before["value"]),
        math.hypot(*halves) if len(halves) == 2 else None,
        higher_is_better=now["higher"],
        margin=now["margin"],
        pairs=1,
        launches=before["n"] + now["n"],
    )
    return {"change": (change.ratio - 1) * 100, "verdict": VERDICTS[change.outcome]}
