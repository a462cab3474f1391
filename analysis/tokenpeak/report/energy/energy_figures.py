"""Figures of the energy page: energy per token against throughput, and what a million tokens cost in parts."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from tokenpeak.names import slug
from tokenpeak.report import picks
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Column, Factors, Figure
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.energy.config_energy import measured
from tokenpeak.report.view import SweepView

WIDTH, HEIGHT = 470, 280
PRICES = ("price", "electricity")
"""Keys of the factors that cost has its parts by."""
PARTS = {"node": "node's time", "power": "electricity"}


def efficiency(
    view: SweepView, hardware: str, frame: pl.DataFrame, tried: int, names: Sequence[str], roles: dict[str, str]
) -> Figure:
    """J per output token against output throughput, an interval each; `frame`: a row per config, as `energy_configs`.

    Without throughputs, which an import may not give, all configs on one axis.
    """
    sources, boundaries = (" and ".join(sorted({*frame[name]})) for name in ("source", "boundary"))
    known = frame["low"].is_not_null().any()
    by = "spread of launches" if frame["estimated"].all() else "sensor and spread of launches"
    bars = (
        f"Bars: 95% intervals by {by}." if known else f"{view.lone_words('One launch each').capitalize()}: no interval."
    )
    shown = frame.with_columns(series="label", value="energy_j_per_output_tok")
    against = shown["output_tok_per_s"].is_not_null().all()
    chart = (
        _scatter(shown, names, roles)
        if against
        else charts.dots(
            shown.with_columns(group=pl.lit(""), remark=pl.lit(""), marked=pl.col("label").is_in(list(names)[:1])),
            title="J per output token",
            tooltips=["value:Q", "n:Q"],
            zero=True,
            width=theme.HALF,
        )
    )
    return figure(
        chart,
        shown,
        {
            "label": "`Config`",
            "output_tok_per_s": "Output throughput (tok/s)",
            "value": measured("value", "Energy per output token"),
            "low": measured("low", "Low"),
            "high": measured("high", "High"),
            "n": "Launches",
            "source": "Source",
        },
        name=f"energy-{slug(hardware)}",
        title=f"Energy per output token{' against throughput' if against else ''}{view.where(hardware)}",
        caption=f"{frame.height} of {tried} configs at {view.objective_place}; {sources}; boundary: {boundaries}, "
        f"before PUE. {'Down and to the right is better. ' if against else ''}{bars}",
        span="half",
        scope=slug(hardware) if against else "",
    )


def _scatter(frame: pl.DataFrame, names: Sequence[str], roles: dict[str, str]) -> alt.TopLevelMixin:
    short = frame.select("series", "n", x="output_tok_per_s", value="value", low="low", high="high").with_columns(
        pl.col("x", "value", "low", "high").round_sig_figs(6)
    )
    pale, chosen = picks.split(alt.Chart(short))
    axis = alt.Axis(labelOverlap="greedy", labelSeparation=6)
    x = alt.X("x:Q", title="output throughput (tok/s)", scale=alt.Scale(zero=False, nice=True, padding=16), axis=axis)
    y = alt.Y("value:Q", title="J per output token", scale=alt.Scale(zero=True, nice=True))
    tip = [
        alt.Tooltip("series:N", title="config"),
        alt.Tooltip("x:Q", format=",.4~r", title="tok/s"),
        alt.Tooltip("value:Q", format=".4~r", title="J/token"),
        *(
            alt.Tooltip(f"{end}:Q", format=".4~r", title=f"95% {end}")
            for end in ("low", "high")
            if short["low"].is_not_null().any()
        ),
        alt.Tooltip("n:Q", title="launches"),
    ]
    key = picks.legend(roles, columns=2)
    span = {"y": alt.Y("low:Q"), "y2": alt.Y2("high:Q")}
    layers = [
        pale.mark_rule(color=theme.FAINT).encode(x=x, **span),
        pale.mark_point(filled=True, color=theme.FAINT, size=50, opacity=1, cursor="pointer").encode(
            x=x, y=y, tooltip=tip
        ),
        chosen.mark_rule(strokeWidth=2).encode(x=x, color=picks.colour(key), **span),
        chosen.mark_point(filled=True, size=90, opacity=1).encode(
            x=x, y=y, color=picks.colour(key), shape=picks.shape(key), tooltip=tip
        ),
    ]
    return alt.layer(*layers, params=picks.parameters(names), width=WIDTH, height=HEIGHT)


def stacked_cost(view: SweepView, hardware: str, frame: pl.DataFrame, factors: Factors) -> Figure | None:
    """Cost of a million output tokens by its parts; scripts draw it again when the reader changes a price.

    None where the throughput is not known. Without any price it is hidden until the reader gives one.
    """
    currency = view.spec.energy.currency
    given = {factor.key: factor.value for factor in factors.factors}
    known = frame.filter(pl.col("output_tok_per_s") > 0).head(charts.CHARTED)
    if known.is_empty():
        return None
    node = pl.lit(given["price"], dtype=pl.Float64) / (3600 * pl.col("output_tok_per_s")) * 1e6
    power = pl.col("energy_j_per_output_tok") / 3.6 * given["pue"] * pl.lit(given["electricity"], dtype=pl.Float64)
    data = known.select("label", "output_tok_per_s", "energy_j_per_output_tok", node=node, power=power)
    drawn = data.select("label", speed="output_tok_per_s", joule="energy_j_per_output_tok").with_columns(
        pl.col("speed", "joule").round_sig_figs(6)
    )
    base = (
        alt.Chart(drawn)
        .transform_calculate(
            node="price == null ? 0 : price / (3600 * datum.speed) * 1e6",
            power="electricity == null ? 0 : datum.joule / 3.6 * pue * electricity",
        )
        .transform_fold(list(PARTS), as_=["part", "cost"])
        .transform_calculate(words=f"{PARTS!r}[datum.part]", order="datum.part == 'node' ? 0 : 1")
    )
    bars = base.mark_bar(stroke=theme.PAPER, strokeWidth=1).encode(
        x=alt.X("cost:Q", title=f"{currency} per 1M output tokens", stack="zero"),
        y=alt.Y("label:N", title=None, sort=drawn["label"].to_list(), axis=alt.Axis(labelLimit=260)),
        color=alt.Color(
            "words:N",
            legend=alt.Legend(title=None),
            scale=alt.Scale(domain=list(PARTS.values()), range=list(theme.SERIES[:2])),
        ),
        order="order:Q",
        tooltip=["label:N", "words:N", alt.Tooltip("cost:Q", format=",.4~r")],
    )
    values = {"pue": given["pue"], **{key: given[key] for key in PRICES}}
    chart = bars.add_params(*(alt.param(name=key, value=value) for key, value in values.items()))
    found = figure(
        chart.properties(width=theme.HALF, height=alt.Step(22)),
        data,
        {
            "label": "`Config`",
            **{
                key: Column(key=key, title=words.capitalize(), unit=f"{currency}/1M tokens", kind="number")
                for key, words in PARTS.items()
            },
        },
        name=f"cost-{slug(hardware)}",
        title=f"Cost of a million output tokens{view.where(hardware)}",
        caption="The node's time by its price an hour, and electricity at the meter. It follows the prices above.",
        span="half",
    )
    return found if any(given[key] is not None for key in PRICES) else found.awaiting(*PRICES)
