"""Carbon intensity, PUE, WUE and prices as the energy page shows them, and the range of its figures by theirs."""

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl

from tokenpeak.report.blocks.block import Factor, Factors
from tokenpeak.report.view import SweepView
from tokenpeak.spec.energy import Citation, EnergyFactors
from tokenpeak.spec.parameters import FACTORS

DEFAULTS = {
    "pue": Citation(low=1.1, high=1.56, source="default, between Google's and the mean of Uptime's survey", year=2024),
    "kg_co2_per_kwh": Citation(
        low=0.03, high=0.71, source="default, a world average, from Norway's to India's (Ember)", year=2023
    ),
    "water_l_per_kwh": Citation(
        low=0.0,
        high=4.52,
        source="default, data centres' mean WUE (Shehabi et al.), from none to the mean of US electricity (LBNL 2024)",
        year=2016,
    ),
}
"""Sources of the default values."""
SHOWN = (
    ("pue", "pue", "PUE", "kWh at the meter per kWh"),
    ("co2", "kg_co2_per_kwh", "CO₂, location-based", "kg per kWh at the meter"),
    ("market", "kg_co2_per_kwh_market", "CO₂, market-based", "kg per kWh at the meter"),
    ("wue", "wue_l_per_kwh", "Water on site (WUE)", "L per kWh at the boards"),
    ("water", "water_l_per_kwh", "Water of electricity", "L per kWh at the meter"),
    ("embodied", "kg_co2_per_gpu_hour", "CO₂, embodied", "kg per GPU-hour"),
    ("price", "price_per_node_hour", "Price of a node", "{currency} per hour"),
    ("electricity", "price_per_kwh", "Price of electricity", "{currency} per kWh at the meter"),
)
"""Key on the page, key in the spec, title and unit."""
FIGURES = {
    "kwh": "energy_kwh_per_1m_output_tok",
    "co2": "co2_kg_per_1m_output_tok",
    "market": "co2_market_kg_per_1m_output_tok",
    "water": "water_l_per_1m_output_tok",
    "embodied": "co2_embodied_kg_per_1m_output_tok",
    "cost": "cost_per_1m_output_tok",
}
"""What follows from the factors, and its column."""


VOLUME = 1000.0
"""Million output tokens a month, until the reader gives another number."""


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
        has_range=False,
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


def with_embodied(per_config: pl.DataFrame, view: SweepView, hardware: str) -> pl.DataFrame:
    """The configs with `gpus` that each one's engine takes, and the embodied CO₂ of a million tokens, kg."""
    used = view.gpus_used(hardware)
    kg = view.spec.energy.kg_co2_per_gpu_hour
    gpus = pl.Series([used.get(config) for config in per_config["config_id"]], dtype=pl.Int64)
    each = pl.lit(kg, dtype=pl.Float64) * gpus / (3600 * pl.col("output_tok_per_s")) * 1e6
    return per_config.with_columns(gpus=gpus, co2_embodied_kg_per_1m_output_tok=each)


def factor_ranges(per_config: pl.DataFrame, shown: Factors) -> pl.DataFrame:
    """Each config with both ends of its figures (`kwh_low` and so on), as the factors' ranges leave them.

    The measured energy stands still: its interval is another matter. A figure that is not known has no ends.
    """
    rows = []
    for row in per_config.iter_rows(named=True):
        found = {"config_id": row["config_id"]}
        for end in ("low", "high"):
            at = {factor.key: _end(factor, end) for factor in shown.factors}
            found |= {f"{key}_{end}": value for key, value in _figures_at(row, at).items()}
        rows.append(found)
    schema = {"config_id": pl.String} | {f"{key}_{end}": pl.Float64 for key in FIGURES for end in ("low", "high")}
    ends = pl.DataFrame(rows, schema=schema)
    return per_config.join(ends, on="config_id", how="left", maintain_order="left")


def _end(factor: Factor, end: str) -> float | None:
    given: float | None = getattr(factor, end)
    return factor.value if given is None or factor.value is None else given


def _node_cost(row: Mapping[str, Any], price: float | None) -> float | None:
    speed = row["output_tok_per_s"]
    return price / (3600 * speed) * 1e6 if price is not None and speed else None


def _figures_at(row: Mapping[str, Any], at: Mapping[str, float | None]) -> dict[str, float | None]:
    """A config's figures by these factors: values of FIGURES by the keys of SHOWN."""
    boards, speed = row["energy_j_per_output_tok"] / 3.6, row["output_tok_per_s"]
    kwh = boards * (at["pue"] or 1.0)
    node, electricity = _node_cost(row, at["price"]), _times(kwh, at["electricity"])
    is_priced = (node is None) == (at["price"] is None) and not (node is None and electricity is None)
    return {
        "kwh": kwh,
        "co2": _times(kwh, at["co2"]),
        "market": _times(kwh, at["market"]),
        "water": boards * (at["wue"] or 0.0) + kwh * (at["water"] or 0.0),
        "embodied": at["embodied"] * row["gpus"] / (3600 * speed) * 1e6
        if at["embodied"] is not None and row["gpus"] and speed
        else None,
        "cost": (node or 0.0) + (electricity or 0.0) if is_priced else None,
    }


def _times(one: float, other: float | None) -> float | None:
    return None if other is None else one * other
