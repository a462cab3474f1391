"""Tables of the energy page: figures per million output tokens and a month, and the ranges that the factors leave."""

import math

import polars as pl

from tokenpeak.names import slug
from tokenpeak.report.blocks.block import Column, Table, table
from tokenpeak.report.energy.config_energy import RANK, places
from tokenpeak.report.energy.energy_factors import FIGURES
from tokenpeak.report.tables import IDLE_SHARE, trial_href
from tokenpeak.report.view import SweepView

JOULE = "energy_j_per_output_tok"
INTERVAL_NOTE = (
    "Digits follow the interval; without one, the widest of the others. "
    "Configs whose intervals reach into that of a rank's first share the rank."
)
RANGE_NOTE = (
    "Each figure with every factor at the low or the high end of its range, the energy of the sweep as it is. A factor "
    "without a range stays at its value; give it one above."
)
_TITLES = {
    "kwh": ("Energy at the meter", "kWh/1M tokens"),
    "co2": ("CO₂", "kg/1M tokens"),
    "market": ("CO₂, market-based", "kg/1M tokens"),
    "water": ("Water", "L/1M tokens"),
    "embodied": ("CO₂, embodied", "kg/1M tokens"),
    "cost": ("Cost", "{currency}/1M tokens"),
}
_OPTIONAL = ("market", "embodied", "cost")
"""Figures whose factor has no default: hidden until one is given."""


def energy(view: SweepView, hardware: str, frame: pl.DataFrame) -> Table:
    """Figures per million output tokens; scripts recompute them when the reader changes a factor.

    `frame`: a row per config with its rank and result, JOULE, low and high, idle, gpus, and the columns of FIGURES.
    """
    currency = view.spec.energy.currency
    by_interval = ("power_w", JOULE, *(FIGURES[key] for key in FIGURES if key not in ("cost", "embodied")))
    shown = frame.with_columns(href=trial_href(pl.col("trial_id"))).with_columns(map(places, by_interval))
    # Hidden, not left out: the page's script computes cost from it, and finds none where it is not known.
    unknown = bool(frame["output_tok_per_s"].is_null().all())
    unbounded = bool(frame["low"].is_null().all())
    measured = [
        _measured(key, title, unit, hidden=unbounded and key in ("low", "high"))
        for key, title, unit in (
            ("power_w", "Mean power", "W"),
            (JOULE, "Energy", "J/token"),
            ("low", "Energy, low", "J/token"),
            ("high", "Energy, high", "J/token"),
        )
    ]
    derived = [
        Column(
            key=FIGURES[key],
            title=title,
            unit=unit.format(currency=currency),
            kind="number",
            digits_from=f"places_{FIGURES[key]}" if FIGURES[key] in by_interval else "",
            hidden=key in _OPTIONAL and bool(frame[FIGURES[key]].is_null().all()),
        )
        for key, (title, unit) in _TITLES.items()
    ]
    return table(
        shown,
        [
            Column(key="label", title="Config", kind="code"),
            Column(key="rank", title="Rank", kind="number", help=RANK),
            Column(key="result", title="Result", kind="state"),
            Column(key="output_tok_per_s", title="Output throughput", unit="tok/s", kind="number", hidden=unknown),
            *measured,
            *derived,
            *([IDLE_SHARE] if frame["idle"].is_not_null().any() else []),
            Column(key="source", title="Source", hidden=frame["source"].n_unique() == 1),
            Column(key="boundary", title="Boundary", hidden=frame["boundary"].n_unique() == 1),
            Column(key="gpus", title="GPUs of the engine", kind="number", hidden=True),
            Column(key="n", title="Launches", kind="number"),
        ],
        name=f"energy-{slug(hardware)}",
        title=f"Energy, CO₂, water and cost on {hardware}",
        hrefs={"label": "href"},
        note="" if unbounded else INTERVAL_NOTE,
    )


MONTHS = (("kwh", "Energy", "kWh"), ("co2", "CO₂", "kg"), ("water", "Water", "L"), ("cost", "Cost", "{currency}"))
"""What a month takes: key of FIGURES, title and unit."""


def months(view: SweepView, hardware: str, frame: pl.DataFrame, volume: float) -> Table:
    """What a month at `volume` million output tokens takes; scripts recompute it. `frame` as for `energy`."""
    keys = [key for key, *_ in MONTHS]
    shown = frame.with_columns(
        *((pl.col(FIGURES[key]) * volume).alias(f"month_{key}") for key in keys),
        *(places(FIGURES[key]) for key in keys if key != "cost"),
        href=trial_href(pl.col("trial_id")),
    )
    # As many digits fewer as the volume has.
    fewer = math.floor(math.log10(volume))
    digits = [
        (pl.col(f"places_{FIGURES[key]}") - fewer).clip(lower_bound=0).alias(f"digits_{key}")
        for key in keys
        if key != "cost"
    ]
    unpriced = bool(frame[FIGURES["cost"]].is_null().all())
    return table(
        shown.with_columns(digits),
        [
            Column(key="label", title="Config", kind="code"),
            *(
                Column(
                    key=f"month_{key}",
                    title=title,
                    unit=unit.format(currency=view.spec.energy.currency),
                    kind="number",
                    digits_from=f"digits_{key}" if key != "cost" else "",
                    hidden=key == "cost" and unpriced,
                )
                for key, title, unit in MONTHS
            ),
        ],
        name=f"month-{slug(hardware)}",
        title=f"A month at the volume above{view.where(hardware)}",
        hrefs={"label": "href"},
        span="narrow",
    )


def _measured(key: str, title: str, unit: str, *, hidden: bool) -> Column:
    """A measured figure with the digits of the energy's interval; its ends have those of the energy itself."""
    source = JOULE if key in ("low", "high") else key
    return Column(key=key, title=title, unit=unit, kind="number", digits_from=f"places_{source}", hidden=hidden)


def factor_ranges(view: SweepView, hardware: str, frame: pl.DataFrame) -> Table:
    """Both ends of each figure as the factors' ranges leave them; scripts recompute them too.

    `frame`: a row per config, with `KEY_low` and `KEY_high` of FIGURES.
    """
    currency = view.spec.energy.currency
    ends = [
        Column(
            key=f"{key}_{end}",
            title=f"{title}, {end}",
            unit=unit.format(currency=currency),
            kind="number",
            hidden=not bool((frame[f"{key}_high"] > frame[f"{key}_low"]).any()),
        )
        for key, (title, unit) in _TITLES.items()
        for end in ("low", "high")
    ]
    return table(
        frame.with_columns(href=trial_href(pl.col("trial_id"))),
        [Column(key="label", title="Config", kind="code"), *ends],
        name=f"factor-ranges-{slug(hardware)}",
        title=f"Range of the figures by factors on {hardware}",
        hrefs={"label": "href"},
        note=RANGE_NOTE,
        span="wide",
    )
