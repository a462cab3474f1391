"""Energy page: carbon intensity, PUE, WUE and prices, energy against throughput, and what follows from both."""

from collections.abc import Collection, Mapping, Sequence

import altair as alt
import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Column, Factor, Factors, Figure, Table, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import counted, number, three_digits
from tokenpeak.report.blocks.metric_columns import trial_href
from tokenpeak.report.config_energy import JOULE, RANK, measured, places, rounded
from tokenpeak.report.trials.trial_tables import IDLE_SHARE
from tokenpeak.report.view import SweepView
from tokenpeak.spec.energy import Citation, EnergyFactors
from tokenpeak.spec.parameters import FACTORS

DEFAULTS = {
    "pue": Citation(low=1.1, high=1.56, source="default; range: Google's to the mean of Uptime's survey", year=2024),
    "kg_co2_per_kwh": Citation(
        low=0.03, high=0.71, source="default: a world average; range: Norway's to India's (Ember)", year=2023
    ),
    "wue_l_per_kwh": Citation(source="default: 0, as the water of electricity counts for both"),
    "water_l_per_kwh": Citation(
        low=0.0,
        high=4.52,
        source="default: mean WUE of 2016 (Shehabi et al.); range: 0 to the mean of US electricity (LBNL 2024)",
    ),
}
"""Sources of the default values."""
SHOWN = (
    ("pue", "pue", "PUE", "kWh at the meter per kWh"),
    ("co2", "kg_co2_per_kwh", "CO₂", "kg per kWh at the meter"),
    ("wue", "wue_l_per_kwh", "Water on site (WUE)", "L per kWh of the GPUs"),
    ("water", "water_l_per_kwh", "Water of electricity", "L per kWh at the meter"),
    ("price", "price_per_node_hour", "Price of a node", "{currency} per hour"),
    ("electricity", "price_per_kwh", "Price of electricity", "{currency} per kWh at the meter"),
)
"""Key on the page, key in the spec, title and unit."""
FIGURES = {
    "kwh": ("energy_kwh_per_1m_output_tok", "Energy at the meter", "kWh"),
    "co2": ("co2_kg_per_1m_output_tok", "CO₂", "kg"),
    "water": ("water_l_per_1m_output_tok", "Water", "L"),
    "cost": ("cost_per_1m_output_tok", "Cost", "{currency}"),
}
"""Column of a million output tokens, title and unit of each figure that follows from the factors."""
OPTIONAL = ("cost",)
"""Figures whose factor has no default: hidden until one is given."""
AMOUNTS = {"million": "A million output tokens", "month": "A month", "year": "A year"}
VOLUME = 1000.0
"""Million output tokens a month, until the reader gives another number."""
WIDTH, HEIGHT = 470, 280
INTERVAL_NOTE = (
    "A config whose interval overlaps that of the first of a rank shares the rank. "
    "Figures have as many digits as the interval allows."
)
RANGE_NOTE = (
    "Range: from all factors at their low ends to all at their high ends; the energy stays the same. "
    "Figures of a month and a year are for the volume among the factors."
)


def factors(view: SweepView) -> Factors:
    """The factors by which the page's tables are derived, as the spec or its defaults have them, and a volume."""
    asked = {FACTORS[name] for name in view.asked.given() if name in FACTORS}
    shown = [_factor(view.spec.energy, asked, *names) for names in SHOWN]
    volume = Factor(
        key="volume",
        title="Volume",
        unit="million output tokens per month",
        value=VOLUME,
        source="an example: give yours",
    )
    return Factors(factors=(*shown, volume))


def _factor(given: EnergyFactors, asked: Collection[str], key: str, name: str, title: str, unit: str) -> Factor:
    value = getattr(given, name)
    own = given.cited.get(name)
    is_default = value == getattr(EnergyFactors(), name) and name not in asked
    default = DEFAULTS.get(name) if is_default else None
    cited = own or default or Citation()
    unnamed = "given with the report" if name in asked else "default" if is_default else "the sweep's spec"
    source = cited.source or ("not given" if value is None else unnamed)
    return Factor(
        key=key,
        title=title,
        unit=unit.format(currency=given.currency),
        value=value,
        source=f"{source}, {cited.year}" if cited.year else source,
        low=cited.low,
        high=cited.high,
    )


def _end(factor: Factor, end: str) -> float | None:
    given: float | None = getattr(factor, end)
    return factor.value if given is None or factor.value is None else given


def _figures_at(at: Mapping[str, float | None]) -> dict[str, pl.Expr]:
    """The figures of a config by these factors: keys of FIGURES; null where a factor that a figure needs is not."""
    known = {key: pl.lit(value, dtype=pl.Float64) for key, value in at.items()}
    boards = pl.col("energy_j_per_output_tok") / 3.6
    kwh = boards * known["pue"]
    node = known["price"] / (3600 * pl.col("output_tok_per_s")) * 1e6
    electricity = kwh * known["electricity"]
    cost = pl.sum_horizontal(node, electricity)
    unpriced = (node.is_null() & known["price"].is_not_null()) | (node.is_null() & electricity.is_null())
    return {
        "kwh": kwh,
        "co2": kwh * known["co2"],
        "water": pl.sum_horizontal(boards * known["wue"], kwh * known["water"]),
        "cost": pl.when(~unpriced).then(cost),
    }


def efficiency(
    view: SweepView, hardware: str, frame: pl.DataFrame, tried: int, names: Sequence[str], roles: dict[str, str]
) -> Figure:
    """J per output token against output throughput, an interval each; `frame`: a row per config, as `energy_configs`.

    Without throughputs, which an import may not give, all configs on one axis.
    """
    sources, boundaries = (" and ".join(sorted({*frame[name]})) for name in ("source", "boundary"))
    known = frame["low"].is_not_null().any()
    if known:
        bars = "Bars: 95% intervals by sensor and spread of launches."
    elif frame["estimated"].all():
        bars = "Estimates follow throughput and are not ranked."
    else:
        alone = "One launch each" if (frame["n"] == 1).all() else "Too few launches"
        bars = f"{view.lone_words(alone).capitalize()}: no interval."
    shown = frame.with_columns(series="label", value="energy_j_per_output_tok")
    against = shown["output_tok_per_s"].is_not_null().all()
    chart = (
        _scatter(shown, names, roles)
        if against
        else charts.dots(
            shown.with_columns(group=pl.lit(""), remark=pl.lit(""), marked=pl.col("label").is_in(list(names)[:1])),
            title="J per output token",
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
    pale, chosen = charts.split(alt.Chart(short))
    x = alt.X("x:Q", title="output throughput (tok/s)", scale=alt.Scale(zero=False, nice=True, padding=16))
    y = alt.Y("value:Q", title="J per output token", scale=alt.Scale(zero=True, nice=True))
    ends = {"95% low": "low:Q", "95% high": "high:Q"} if short["low"].is_not_null().any() else {}
    tip = charts.tooltips({"config": "series:N", "tok/s": "x:Q", "J/token": "value:Q", **ends, "launches": "n:Q"})
    key = charts.legend(roles, columns=2)
    span = {"y": alt.Y("low:Q"), "y2": alt.Y2("high:Q")}
    layers = [
        pale.mark_rule(color=theme.FAINT).encode(x=x, **span),
        pale.mark_point(filled=True, color=theme.FAINT, size=50, opacity=1, cursor="pointer").encode(
            x=x, y=y, tooltip=tip
        ),
        chosen.mark_rule(strokeWidth=2).encode(x=x, color=charts.colour(key), **span),
        chosen.mark_point(filled=True, size=90, opacity=1).encode(
            x=x, y=y, color=charts.colour(key), shape=charts.shape(key), tooltip=tip
        ),
    ]
    return alt.layer(*layers, params=charts.parameters(names), width=WIDTH, height=HEIGHT)


def energy_table(view: SweepView, hardware: str, frame: pl.DataFrame) -> Table:
    """Figures per million output tokens; scripts recompute them when the reader changes a factor.

    `frame`: a row per config with its rank and result, JOULE, low and high, idle, and the columns of FIGURES.
    """
    by_interval = ("power_w", JOULE, *(column for key, (column, *_) in FIGURES.items() if key != "cost"))
    # Hidden, not left out: the page's script computes cost from it, and finds none where it is not known.
    unknown = bool(frame["output_tok_per_s"].is_null().all())
    unbounded = bool(frame["low"].is_null().all())
    measured = [
        Column(key=key, title=title, unit=unit, kind="number", digits_from=f"places_{source}", hidden=hidden)
        for key, title, unit, source, hidden in (
            ("power_w", "Mean power", "W", "power_w", False),
            (JOULE, "Energy", "J/token", JOULE, False),
            ("low", "Energy, low", "J/token", JOULE, True),
            ("high", "Energy, high", "J/token", JOULE, True),
        )
    ]
    ends = [
        None if low is None or high is None else f"{rounded(low, low, high)} to {rounded(high, low, high)}"
        for low, high in frame.select("low", "high").iter_rows()
    ]
    derived = [
        Column(
            key=column,
            title=title,
            unit=f"{_unit(view, unit)}/1M tokens",
            kind="number",
            digits_from=f"places_{column}" if column in by_interval else "",
            hidden=key in OPTIONAL and bool(frame[column].is_null().all()),
        )
        for key, (column, title, unit) in FIGURES.items()
    ]
    ranked = [
        Column(key="rank", title="Rank", kind="number", help=RANK),
        Column(key="result", title="Result", kind="state"),
    ]
    return table(
        frame.with_columns(*map(places, by_interval), interval=pl.Series(ends), href=trial_href(pl.col("trial_id"))),
        [
            Column(key="label", title="Config", kind="code"),
            *(ranked if frame["rank"].is_not_null().any() else []),
            Column(key="output_tok_per_s", title="Output throughput", unit="tok/s", kind="number", hidden=unknown),
            *measured,
            Column(key="interval", title="95% interval", unit="J/token", hidden=unbounded),
            *derived,
            *([IDLE_SHARE] if frame["idle"].is_not_null().any() else []),
            Column(key="source", title="Source", hidden=frame["source"].n_unique() == 1),
            Column(key="boundary", title="Boundary", hidden=frame["boundary"].n_unique() == 1),
            Column(key="n", title="Launches", kind="number"),
        ],
        name=f"energy-{slug(hardware)}",
        title=f"{_title(frame)} on {hardware}",
        hrefs={"label": "href"},
        note=" ".join(
            words for words in ("" if unbounded else INTERVAL_NOTE, _launches_left_out(view, hardware)) if words
        ),
    )


def _title(frame: pl.DataFrame) -> str:
    """What a table is of: of cost too, where a price is given."""
    priced = frame[FIGURES["cost"][0]].is_not_null().any()
    return "Energy, CO₂, water and cost" if priced else "Energy, CO₂ and water"


def _launches_left_out(view: SweepView, hardware: str) -> str:
    """Why throughputs here are not the ranking's, which has launches without an energy figure, too."""
    ranked = view.objective_runs().filter(pl.col("hardware") == hardware, pl.col("verdict") != "invalid")
    without = ranked[JOULE].null_count()
    launches = counted(without, "launch has", "launches have")
    return f"{launches} no energy figure: their throughput is in the ranking's means, not here." if without else ""


def _unit(view: SweepView, unit: str) -> str:
    return unit.format(currency=view.spec.energy.currency)


def amounts_table(view: SweepView, hardware: str, frame: pl.DataFrame, shown: Factors, label: str) -> Table:
    """What one config takes for a million output tokens, with its range by the factors, a month and a year.

    `frame` as for `energy_table`; `label` is the config's. Scripts recompute it when the reader changes a factor.
    """
    at = {end: {factor.key: _end(factor, end) for factor in shown.factors} for end in ("low", "high")}
    volume = next(factor.value for factor in shown.factors if factor.key == "volume") or VOLUME
    own = frame.filter(label=label)
    ranges = [own.select(**_figures_at(ends)).row(0, named=True) for ends in at.values()]
    rows = []
    for key, (column, title, unit) in FIGURES.items():
        million = own[column][0]
        low, high = (ends[key] for ends in ranges)
        rows.append(
            {
                "figure": f"{title.removesuffix(' at the meter')} ({_unit(view, unit)})",
                "label": label,
                "million": million,
                "range": f"{_three(low)} to {_three(high)}" if low is not None and low != high else None,
                "month": million * volume if million is not None else None,
                "year": million * volume * 12 if million is not None else None,
            }
        )
    amounts = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col(name).map_elements(lambda value: three_digits(value) if value else 0, pl.Int64).alias(f"digits_{name}")
        for name in AMOUNTS
    )
    return table(
        amounts,
        [
            Column(key="figure", title="At the meter"),
            Column(key="label", title="Config", kind="code", hidden=True),
            Column(key="million", title=AMOUNTS["million"], kind="number", digits_from="digits_million"),
            *(
                Column(key=key, title=AMOUNTS[key], kind="number", digits_from=f"digits_{key}")
                for key in ("month", "year")
            ),
            Column(key="range", title="Range of a million, by the factors"),
        ],
        name=f"amounts-{slug(hardware)}",
        title=f"{_title(own)} with {label}{view.where(hardware)}",
        note=RANGE_NOTE,
        span="half",
    )


def _three(value: float) -> str:
    return number(value, three_digits(value) if value else 0)
