"""Intervals of configs' energy on the energy page and drift of power with temperature, from their launches' rows."""

import polars as pl

from tokenpeak.ranking.energy_intervals import LaunchEnergy, energy_intervals
from tokenpeak.ranking.temperature_drift import temperature_drift
from tokenpeak.report.blocks import Sentence, note, number


def with_energy_intervals(per_config: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """`per_config` with `low` and `high` in J per output token; `runs` has a row per launch, with its sensor's ends.

    Launches are pooled over the configs of a kind of hardware. A config of a kind without a measured energy keeps its
    own.
    """
    parts = []
    for (hardware,), own in runs.group_by("hardware", maintain_order=True):
        configs = per_config.filter(hardware=hardware)
        if own["low"].is_null().all():
            parts.append(configs)
            continue
        launches: dict[str, list[LaunchEnergy]] = {}
        for config, joule, low, high in own.select("config_id", "energy_j_per_output_tok", "low", "high").iter_rows():
            launches.setdefault(config, []).append(LaunchEnergy(joule=joule, low=low, high=high))
        found = energy_intervals(launches)
        parts.append(
            configs.with_columns(
                low=pl.Series([found[config][0] for config in configs["config_id"]], dtype=pl.Float64),
                high=pl.Series([found[config][1] for config in configs["config_id"]], dtype=pl.Float64),
            )
        )
    return pl.concat(parts).sort("energy_j_per_output_tok") if parts else per_config


def temperature_note(hardware: str, runs: pl.DataFrame) -> Sentence | None:
    """What the boards' temperature does to the power of one kind of hardware; None where none was read."""
    own = runs.filter(
        pl.col("hardware") == hardware,
        pl.col("temperature_c").is_not_null(),
        pl.col("power_w") > 0,
        pl.col("energy_source") != "estimated_tdp",
    )
    if own.is_empty():
        return None
    launches: dict[str, list[tuple[float, float]]] = {}
    for config, degrees, power_w in own.select("config_id", "temperature_c", "power_w").iter_rows():
        launches.setdefault(config, []).append((degrees, power_w))
    warmths = own["temperature_c"].to_list()
    ends = dict.fromkeys(number(end, 0) for end in (min(warmths), max(warmths)))
    found = temperature_drift(launches)
    boards = f"On {hardware}, boards were at {' to '.join(ends)} °C when runs began"
    if found is None:
        return note(f"{boards}; too few configs were launched again to see what that does to their power.")
    interval = f"{found.low:+.2%} to {found.high:+.2%} per °C"
    if found.is_significant:
        return note(f"{boards}; power changed with it by {found.per_degree:+.2%} per °C ({interval}).")
    return note(f"{boards}; no drift of power with it is seen ({interval}).")
