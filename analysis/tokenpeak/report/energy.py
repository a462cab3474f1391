"""Energy, CO₂, water and cost of each config under the objective's load, with what is measured and what is assumed."""

import polars as pl

from tokenpeak.plan.spec import EnergyFactors
from tokenpeak.report.blocks import Factor, Factors
from tokenpeak.report.view import SweepView

SOURCES = {
    "energy_counter": "measured (energy counter)",
    "sampled_power": "measured (sampled power)",
    "estimated_tdp": "estimated (TDP)",
}
BOUNDARIES = {"gpu_boards": "GPU boards", "cpu_package": "CPU package", "node": "whole node"}
DERIVED = (
    "energy_kwh_per_1m_output_tok",
    "co2_kg_per_1m_output_tok",
    "water_l_per_1m_output_tok",
    "cost_per_1m_output_tok",
)


def per_config(view: SweepView, hardware: str) -> pl.DataFrame:
    """Valid runs of the objective's load, averaged over launches, thriftiest first.

    Columns: config_id, label, trial_id, output_tok_per_s, power_w, energy_j_per_output_tok, low, high (the launches'
    range; null for one), the derived ones, source, boundary (words), estimated, n.
    """
    runs = view.objective_runs().filter(
        pl.col("hardware") == hardware, pl.col("verdict") != "invalid", pl.col("energy_j_per_output_tok").is_not_null()
    )
    joule = pl.col("energy_j_per_output_tok")
    several = pl.len() > 1
    return (
        runs.group_by("config_id", maintain_order=True)
        .agg(
            pl.col("label", "trial_id").first(),
            # As in the ranking: the geometric mean.
            pl.col("output_tok_per_s", "power_w", "energy_j_per_output_tok", *DERIVED).log().mean().exp(),
            low=pl.when(several).then(joule.min()),
            high=pl.when(several).then(joule.max()),
            source=pl.col("energy_source").first().replace(SOURCES),
            boundary=pl.col("energy_boundary").first().replace(BOUNDARIES),
            estimated=(pl.col("energy_source") == "estimated_tdp").any(),
            n=pl.len(),
        )
        .sort("energy_j_per_output_tok")
    )


def factors(view: SweepView) -> Factors:
    """The factors that turn energy and time into kWh, CO₂, water and money, as the spec or its defaults have them."""
    given = view.spec.energy
    default = EnergyFactors()

    def source(key: str, words: str) -> str:
        return words if getattr(given, key) == getattr(default, key) else "the sweep's spec"

    return Factors(
        factors=(
            Factor(
                key="pue",
                title="PUE",
                unit="kWh at the meter per kWh",
                value=given.pue,
                source=source("pue", "default, between a cloud's 1.1 and the 1.6 of surveys"),
            ),
            Factor(
                key="co2",
                title="CO₂",
                unit="kg per kWh at the meter",
                value=given.kg_co2_per_kwh,
                source=source("kg_co2_per_kwh", "default, a world average of electricity"),
            ),
            Factor(
                key="water",
                title="Water",
                unit="L per kWh at the meter",
                value=given.water_l_per_kwh,
                source=source(
                    "water_l_per_kwh", "default, data centres' mean WUE, which is per kWh before PUE: a high guess"
                ),
            ),
            Factor(
                key="price",
                title="Price of a node",
                unit=f"{given.currency} per hour",
                value=given.price_per_node_hour,
                source="the sweep's spec" if given.price_per_node_hour else "not given",
            ),
            Factor(key="volume", title="Volume", unit="million output tokens per month", value=None, source="yours"),
        )
    )
