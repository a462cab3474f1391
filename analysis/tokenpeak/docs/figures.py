"""Figures of the explanations, drawn from archives that the package carries."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from tokenpeak import paths
from tokenpeak.errors import ReportError, suggestion
from tokenpeak.files import delete, write_atomically
from tokenpeak.report import config_energy
from tokenpeak.report.blocks import charts, display, theme
from tokenpeak.report.blocks.block import Figure
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.heatmaps import heatmap, widest_gain
from tokenpeak.report.interactions import effects
from tokenpeak.report.load import curves, interactivity
from tokenpeak.report.opening import open_archive
from tokenpeak.report.ranking import ranking_blocks
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.site import render
from tokenpeak.report.view import SweepView, short_names

H100, CPU_SEARCH, CPU_GRID, REQUESTS = (
    paths.LANDSCAPES / f"{name}.tar.zst" for name in ("search-h100", "search-cpu", "landscape-cpu", "requests-sim")
)
_KINDS = {
    "orchestration": "TokenPeak itself",
    "engine_start": "engine starts",
    "load": "load",
    "production_start": "production starts",
}


def drawn(name: str) -> dict[str, Any]:
    """The figure of that name: `svg`, `title`, `caption`, `data` (a table), `source` and `marks`; kept once drawn."""
    if name not in FIGURES:
        raise ReportError(f"No figure is called {name!r}. {suggestion(name, FIGURES)}")
    archive, make = FIGURES[name]
    digest = hashlib.sha256(f"{render.code_digest()} {name}".encode() + archive.read_bytes()).hexdigest()
    kept = paths.state_dir() / "docs-figures" / f"{name}-{digest[:16]}.json"
    if not kept.is_file():
        view = open_archive(archive)
        made = make(view)
        found = {**made.payload(), "svg": display.svg(made.spec), "source": archive.name, "marks": _marks(view, name)}
        del found["spec"]
        kept.parent.mkdir(parents=True, exist_ok=True)
        for former in kept.parent.glob(f"{name}-*.json"):
            delete(former)
        write_atomically(kept, json.dumps(found))
    result: dict[str, Any] = json.loads(kept.read_text())
    return result


def _marks(view: SweepView, name: str) -> list[str]:
    """How a figure is marked; an estimate of the energy qualifies what is said of energy, not the speeds."""
    return [mark for mark in view.marks() if name == "energy" or mark != "energy estimated"]


def _phases(view: SweepView) -> Figure:
    """Where the time of each launch went."""
    rows = [
        {"launch": f"{number}. {trial['label']}", "phase": _KINDS[phase["kind"]], "seconds": phase["duration_s"]}
        for number, trial in enumerate(view.trials.iter_rows(named=True), 1)
        for phase in json.loads(trial["phases"])
    ]
    frame = pl.DataFrame(rows).group_by("launch", "phase", maintain_order=True).agg(pl.col("seconds").sum())
    frame = frame.filter(pl.col("seconds") > 0).with_columns(place=pl.col("phase").replace_strict(_PLACES))
    names = [name for name in _KINDS.values() if name in frame["phase"]]
    chart = (
        alt.Chart(frame)
        .mark_bar(height=14)
        .encode(
            x=alt.X("seconds:Q", title="seconds", stack="zero"),
            y=alt.Y("launch:N", title=None, sort=None, axis=alt.Axis(labelLimit=260, labelColor=theme.INK)),
            color=alt.Color(
                "phase:N",
                title=None,
                sort=names,
                scale=alt.Scale(domain=names, range=[theme.SERIES[1], theme.FAINT, theme.SERIES[0], theme.SERIES[2]]),
            ),
            order="place:Q",
        )
        .properties(width=560, height=alt.Step(22))
    )
    titles = {"launch": "`Launch`", "phase": "Phase", "seconds": "Time (s)"}
    return figure(chart, frame, titles, name="phases", title="Where the time of each launch went", caption="")


_PLACES = {name: place for place, name in enumerate(_KINDS.values())}


def _ranking(view: SweepView) -> Figure:
    ranked = rank(view, view.hardware[0])
    chart = charts.dots(ranking_blocks.standings(ranked), title=view.metric.unit, reference=ranked.reference)
    return ranking_blocks.ranking_figure(view, ranked, chart.properties(width=460))


def _rates(view: SweepView) -> Figure:
    """Curves of the recommended config and the others over the rates that were offered."""
    ranked = rank(view, view.hardware[0])
    workload = view.spec.workloads[0].workload.name
    found = curves.of_workload(view, view.hardware[0], workload, "rate", interactivity.roles(view, ranked))
    assert found is not None, "a shipped archive has runs at several rates"
    return found


def _in_flight(view: SweepView) -> Figure:
    """Requests in flight over time, in the run at the highest rate of the first launch."""
    run = view.runs.filter(pl.col("level_kind") == "open").sort("trial_id", "rate_per_s").row(2, named=True)
    requests = view.requests.filter(
        pl.col("trial_id") == run["trial_id"], pl.col("run_index") == run["run_index"], pl.col("phase") == "measured"
    ).collect()
    steps = pl.concat(
        [
            requests.select(t_s="due_s", change=pl.lit(1)),
            requests.select(t_s="last_token_s", change=pl.lit(-1)),
        ]
    )
    frame = steps.drop_nulls().sort("t_s").with_columns(in_flight=pl.col("change").cum_sum())
    frame = frame.select(pl.col("t_s") - pl.col("t_s").min(), "in_flight")
    chart = (
        alt.Chart(frame)
        .mark_line(interpolate="step-after", color=theme.ACCENT, strokeWidth=1.5)
        .encode(x=alt.X("t_s:Q", title="seconds"), y=alt.Y("in_flight:Q", title="requests in flight"))
        .properties(width=560, height=200)
    )
    titles = {"t_s": "Time (s)", "in_flight": "Requests in flight"}
    words = f"Requests in flight at {run['level_label']}"
    return figure(chart, frame, titles, name="in-flight", title=words, caption="")


def _trade_off(view: SweepView) -> Figure:
    found = interactivity.interactivity(view, rank(view, view.hardware[0]))
    assert found is not None, "a shipped archive has per-request speeds"
    return found


def _effects(view: SweepView) -> Figure:
    """Effects of alternatives by themselves."""
    short = {name: word for names in view.axes.values() for name, word in short_names(names).items()}
    found = effects(view).drop_nulls("effect")
    shown = found.with_columns(choice=pl.concat_str("axis", pl.lit(" = "), pl.col("alternative").replace(short)))
    titles = {"axis": "`Axis`", "alternative": "`Alternative`", "effect": "Effect", "low": "Low", "high": "High"}
    chart = charts.effects(shown.drop("matters", "remark"), title="from the axis's mean")
    return figure(chart, shown, titles, name="effects", title="What each alternative does by itself", caption="")


def _heatmap(view: SweepView) -> Figure:
    across, down = list(view.axes)[:2]
    return heatmap(view, across, down, widest_gain(view))


def _progress(view: SweepView) -> Figure:
    """Each launch of a search in order, and the best so far."""
    frame = (
        view.trials.filter(~pl.col("holdout"))
        .sort("ended_at")
        .select("label", pl.col("objective").alias("value"), pl.col("predicted_output_tok_per_s").alias("predicted"))
        .with_row_index("launch", offset=1)
        .with_columns(best=pl.col("value").cum_max())
    )
    base = alt.Chart(frame).encode(x=alt.X("launch:O", title="launch", axis=alt.Axis(labelAngle=0)))
    y = alt.Y("value:Q", title=view.metric.unit, scale=alt.Scale(zero=True))
    layers = [
        base.mark_line(interpolate="step-after", color=theme.ACCENT).encode(y=alt.Y("best:Q")),
        base.mark_point(filled=True, size=80, color=theme.ACCENT, opacity=1).encode(y=y),
        base.mark_tick(color=theme.SERIES[1], thickness=2, width=22).encode(y=alt.Y("predicted:Q")),
    ]
    chart = alt.layer(*layers).properties(width=560, height=260)
    titles = {"launch": "Launch", "label": "`Config`", "value": "Measured (tok/s)", "predicted": "Predicted (tok/s)"}
    return figure(chart, frame, titles, name="progress", title="A search, launch by launch", caption="")


def _predicted(view: SweepView) -> Figure:
    """Predictions before the first launch beside measurements."""
    frame = view.trials.select(
        "label", pl.col("predicted_output_tok_per_s").alias("predicted"), pl.col("objective").alias("measured")
    ).with_columns(ratio=pl.col("measured") / pl.col("predicted"))
    most = float(max(frame["predicted"].max(), frame["measured"].max()))  # type: ignore[type-var, arg-type]
    equal = alt.Chart(pl.DataFrame({"x": [0.0, most], "y": [0.0, most]})).mark_line(
        color=theme.QUIET, strokeDash=[4, 3]
    )
    point = alt.Chart(frame).encode(
        x=alt.X("predicted:Q", title="predicted, tok/s"), y=alt.Y("measured:Q", title="measured, tok/s")
    )
    layers = [
        equal.encode(x="x:Q", y="y:Q"),
        point.mark_point(filled=True, size=80, color=theme.ACCENT, opacity=1),
    ]
    chart = alt.layer(*layers).properties(width=420, height=300)
    titles = {
        "label": "`Config`",
        "predicted": "Predicted (tok/s)",
        "measured": "Measured (tok/s)",
        "ratio": "Measured ÷ predicted",
    }
    return figure(chart, frame, titles, name="predicted", title="Predicted and measured throughput", caption="")


def _energy(view: SweepView) -> Figure:
    """Joules per output token of each config."""
    frame = config_energy.with_ranks(config_energy.energy_configs(view)).with_columns(
        value=config_energy.JOULE, group=pl.lit(""), marked=pl.lit(value=False), remark=pl.lit("")
    )
    titles = {"label": "`Config`", "value": "Energy (J/token)"}
    chart = charts.dots(frame, title="J per output token", zero=True).properties(width=460)
    return figure(chart, frame, titles, name="energy", title="Energy per output token", caption="")


def _conditions(view: SweepView) -> Figure:
    """How much launches of one config differ."""
    means = view.trials.group_by("config_id").agg(pl.col("objective").log().mean().exp().alias("mean"))
    frame = view.trials.join(means, on="config_id").with_columns(
        difference=(pl.col("objective") / pl.col("mean") - 1) * 100
    )
    frame = frame.select("label", "replicate", "difference").sort("difference")
    chart = (
        alt.Chart(frame)
        .mark_bar(color=theme.ACCENT)
        .encode(
            x=alt.X("difference:Q", bin=alt.Bin(step=5), title="difference from the config's mean, %"),
            y=alt.Y("count():Q", title="launches"),
        )
        .properties(width=560, height=220)
    )
    titles = {"label": "`Config`", "replicate": "Launch", "difference": "Difference (%)"}
    return figure(chart, frame, titles, name="spread", title="How much launches of one config differ", caption="")


FIGURES: dict[str, tuple[Path, Callable[[SweepView], Figure]]] = {
    "phases": (H100, _phases),
    "ranking": (H100, _ranking),
    "intervals": (CPU_SEARCH, _ranking),
    "spread": (CPU_GRID, _conditions),
    "rates": (REQUESTS, _rates),
    "in-flight": (REQUESTS, _in_flight),
    "trade-off": (H100, _trade_off),
    "effects": (CPU_GRID, _effects),
    "heatmap": (CPU_GRID, _heatmap),
    "progress": (CPU_SEARCH, _progress),
    "predicted": (H100, _predicted),
    "energy": (H100, _energy),
}
"""Name → the archive that it is drawn from, and what draws it."""
