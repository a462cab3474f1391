"""Figures of distributions: quantile plots, TTFT by input length or turn, and a run's queue over time."""

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks import picks
from tokenpeak.report.blocks.block import Column, Figure, Table, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.load.curve_charts import STEEP
from tokenpeak.report.requests import distributions
from tokenpeak.report.view import SweepView

WIDTH, HEIGHT = 300, 210
TABLED = (0.5, 0.95, 0.99)
"""Quantiles of the table."""


def _lines(
    frames: Mapping[str, pl.DataFrame], names: Sequence[str], roles: Mapping[str, str], x: alt.X, *, step: bool = False
) -> alt.TopLevelMixin:
    """A panel for each frame (series, x, value, n if known), titled by its key: picked configs as lines."""
    key = picks.legend(roles)
    panels = []
    for words, frame in frames.items():
        short = frame.with_columns(pl.col("x", "value").round_sig_figs(5))
        values = short["value"].to_list()
        log = not step and min(values) > 0 and max(values) > STEEP * min(values)
        y = alt.Y(
            "value:Q",
            title=words,
            scale=alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True, nice=True),
            axis=alt.Axis(tickCount=5, format=",.4~r"),
        )
        _, chosen = picks.split(alt.Chart(short))
        base = chosen.encode(x=x, y=y, color=picks.colour(key))
        counted = {"requests": "n:Q"} if "n" in short.columns else {}
        tip = picks.tooltips({"config": "series:N", "x": "x:Q", words: "value:Q", **counted})
        line = base.mark_line(interpolate="step" if step else "linear", strokeWidth=1.8)
        dot = base.mark_point(filled=True, size=26, opacity=0 if step else 1)
        shape = alt.Undefined if step else picks.shape(key)
        layers = [line.encode(strokeDash=picks.dash(key)), dot.encode(shape=shape, tooltip=tip)]
        panels.append(alt.layer(*layers, width=WIDTH, height=HEIGHT))
    return alt.concat(*panels, columns=3, spacing=28, params=picks.parameters(names))


def quantile_figure(
    view: SweepView, hardware: str, frame: pl.DataFrame, names: Sequence[str], roles: Mapping[str, str]
) -> Figure:
    """Time against the share of requests that took no longer: a panel each for TTFT, TPOT and latency."""
    known = {key: own for key in distributions.WORDS if (own := frame.filter(quantity=key)).height}
    axis = alt.Axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 0.9, 0.99], labelOverlap="greedy")
    x = alt.X("x:Q", title="share of requests that took no longer", scale=alt.Scale(zero=False, nice=False), axis=axis)
    panels = {f"{distributions.WORDS[key]} (ms)": own.drop("quantity") for key, own in known.items()}
    counts = sorted({*frame["n"].to_list()})
    n = " to ".join(number(each) for each in dict.fromkeys([counts[0], counts[-1]]))
    whole = frame["x"].n_unique() > len(distributions.RECORDED)
    return figure(
        _lines(panels, names, roles, x),
        frame.with_columns(pl.col("quantity").replace(distributions.WORDS), x=pl.col("x") * 100),
        {
            "series": "`Config`",
            "quantity": "Time",
            "x": Column(key="x", title="Share of requests", unit="%", kind="number", digits=0),
            "value": "At most (ms)",
            "n": "Requests",
        },
        name=f"quantiles-{slug(hardware)}",
        title=f"How long requests took{view.where(hardware)}",
        caption=f"Measured requests at {view.objective_place}, n={n} each. A flat line: requests alike; a steep end: a "
        f"long tail.{'' if whole else ' Quantiles as recorded: the archive has no single requests.'}",
        scope=slug(hardware),
    )


def quantile_table(view: SweepView, hardware: str, frame: pl.DataFrame) -> Table:
    """A row per config with the quantiles of TABLED of each time; a row picks its config."""
    short = frame.filter(pl.col("x").is_in(TABLED)).with_columns(
        column=pl.format("{}_{}", "quantity", (pl.col("x") * 100).round().cast(pl.Int64))
    )
    wide = short.pivot("column", index="series", values="value", maintain_order=True)
    counts = frame.group_by("series").agg(pl.col("n").max())
    return table(
        wide.join(counts, on="series", how="left", maintain_order="left"),
        [
            Column(key="series", title="Config", unit=" / ".join(view.axes), kind="code"),
            *(
                Column(key=f"{key}_{share * 100:.0f}", title=f"{words} p{share * 100:.0f}", unit="ms", kind="number")
                for key, words in distributions.WORDS.items()
                for share in TABLED
            ),
            Column(key="n", title="Requests", kind="number"),
        ],
        name=f"quantiles-table-{slug(hardware)}",
        title=f"Quantiles of requests{view.where(hardware)}",
        scope=slug(hardware),
    )


def group_figure(
    view: SweepView, hardware: str, frame: pl.DataFrame, words: str, names: Sequence[str], roles: Mapping[str, str]
) -> Figure:
    """TTFT against the input length or the turn: medians of groups with their quartiles."""
    key = picks.legend(roles, columns=2)
    _, chosen = picks.split(alt.Chart(frame.with_columns(pl.col("value", "low", "high").round_sig_figs(5))))
    x = alt.X("x:Q", title=words, scale=alt.Scale(zero=False, padding=10))
    base = chosen.encode(x=x, color=picks.colour(key))
    bar = base.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("low:Q", title="TTFT (ms)"), y2="high:Q")
    line = base.mark_line().encode(y="value:Q", strokeDash=picks.dash(key))
    tip = picks.tooltips({"config": "series:N", words: "x:Q", "TTFT p50 (ms)": "value:Q", "requests": "n:Q"})
    dot = base.mark_point(filled=True, size=45, opacity=1).encode(y="value:Q", shape=picks.shape(key), tooltip=tip)
    drawn = alt.layer(bar, line, dot, params=picks.parameters(names), width=460, height=230)
    return figure(
        drawn,
        frame,
        {
            "series": "`Config`",
            "x": words[0].upper() + words[1:],
            "value": "TTFT p50 (ms)",
            "low": "TTFT p25 (ms)",
            "high": "TTFT p75 (ms)",
            "n": "Requests",
        },
        name=f"ttft-by-{slug(words.partition(' (')[0])}-{slug(hardware)}",
        title=f"TTFT by {words.partition(' (')[0]}{view.where(hardware)}",
        caption="Median of each group of requests, bars from the 25th to the 75th percentile; "
        f"n={number(int(frame['n'].sum()))} requests.",
        span="half",
        scope=slug(hardware),
    )


def time_figure(
    view: SweepView, hardware: str, frame: pl.DataFrame, names: Sequence[str], roles: Mapping[str, str]
) -> Figure:
    """The engine's queue over the time of a run."""
    words = {"running": "requests running", "waiting": "requests waiting"}
    panels = {words[key]: own.drop("quantity") for key in words if (own := frame.filter(quantity=key)).height}
    x = alt.X("x:Q", title="seconds after the first measured request", scale=alt.Scale(zero=False, nice=False))
    return figure(
        _lines(panels, names, roles, x, step=True),
        frame.with_columns(pl.col("quantity").replace(words)),
        {"series": "`Config`", "quantity": "Quantity", "x": "Time (s)", "value": "Value"},
        name=f"queue-{slug(hardware)}",
        title=f"Queue over a run{view.where(hardware)}",
        caption=f"Each config's first launch at {view.objective_place}. A queue that grows to the end: the load is "
        "more than the engine serves.",
        scope=slug(hardware),
    )
