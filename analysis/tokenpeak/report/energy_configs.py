"""Energy of configs: the runs with a figure, and each config's mean with its 95% interval.

A config's interval holds what the sensor leaves open and the spread from launch to launch, pooled over the configs of a
kind of hardware; see `ranking.energy_intervals`.
"""

from functools import lru_cache

import polars as pl

from tokenpeak.report.energy import BOUNDARIES, DERIVED, sources_of
from tokenpeak.report.energy_spread import with_energy_intervals
from tokenpeak.report.view import SweepView

JOULE = "energy_j_per_output_tok"


def energy_runs(view: SweepView) -> pl.DataFrame:
    """The objective's runs that may be ranked and have an energy, with the ends of its sensor's interval, J/token."""
    runs = view.objective_runs().filter(pl.col("verdict") != "invalid", pl.col(JOULE).is_not_null())
    return runs.with_columns(
        low=pl.col(JOULE) * pl.col("energy_low_j") / pl.col("energy_j"),
        high=pl.col(JOULE) * pl.col("energy_high_j") / pl.col("energy_j"),
    )


@lru_cache(maxsize=4)
def energy_configs(view: SweepView) -> pl.DataFrame:
    """A row per config and kind of hardware, the thriftiest first: geometric means over launches, with low and high.

    `idle` is the share, in percent, that the idle power comes to; `estimated`: from rated power, not measured; its
    `low` and `high` hold the spread of launches alone, and are null where no config was launched again.
    """
    runs = energy_runs(view)
    return (
        runs.group_by("hardware", "config_id", maintain_order=True)
        .agg(
            pl.col("label", "trial_id").first(),
            pl.col("output_tok_per_s", "power_w", JOULE, *DERIVED).log().mean().exp(),
            source=pl.col("energy_source").first().replace(sources_of(is_simulated=view.record.simulated)),
            boundary=pl.col("energy_boundary").first().replace(BOUNDARIES),
            estimated=(pl.col("energy_source") == "estimated_tdp").any(),
            idle=pl.col("idle_share").mean() * 100,
            n=pl.len(),
        )
        .pipe(with_energy_intervals, runs)
        .sort(JOULE)
    )
