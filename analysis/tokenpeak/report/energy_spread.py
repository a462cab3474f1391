"""Intervals of configs' energy on the energy page and drift of power with temperature, from their launches' rows."""

import math
from collections.abc import Mapping, Sequence

import polars as pl

from tokenpeak.ranking.energy_intervals import LaunchEnergy, energy_intervals
from tokenpeak.ranking.intervals import t_critical
from tokenpeak.ranking.temperature_drift import temperature_drift
from tokenpeak.ranking.ties import winner_group
from tokenpeak.report.blocks import Sentence, note, number


def with_energy_intervals(per_config: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """`per_config` with `low` and `high` in J per output token; `runs` has a row per launch, with its sensor's ends.

    Launches are pooled over the configs of a kind of hardware. Of estimates, which have no sensor, the interval holds
    what launches vary by, as that of the ranking; null where no config was launched again.
    """
    parts = []
    for (hardware,), own in runs.group_by("hardware", maintain_order=True):
        configs = per_config.filter(hardware=hardware)
        launches: dict[str, list[LaunchEnergy]] = {}
        for config, joule, low, high in own.select("config_id", "energy_j_per_output_tok", "low", "high").iter_rows():
            launches.setdefault(config, []).append(LaunchEnergy(joule=joule, low=low, high=high))
        is_estimated = own["low"].is_null().all()
        found = _estimate_intervals(launches) if is_estimated else energy_intervals(launches)
        ends = [found.get(config, (None, None)) for config in configs["config_id"]]
        parts.append(
            configs.with_columns(
                low=pl.Series([low for low, _ in ends], dtype=pl.Float64),
                high=pl.Series([high for _, high in ends], dtype=pl.Float64),
            )
        )
    return pl.concat(parts).sort("energy_j_per_output_tok") if parts else per_config


def _estimate_intervals(launches: Mapping[str, Sequence[LaunchEnergy]]) -> dict[str, tuple[float, float]]:
    """The 95% interval of each config's mean by the spread of launches alone; of none where it says nothing."""
    found = winner_group({config: [each.joule for each in own] for config, own in launches.items()})
    if found.noise is None:
        return {}
    wide = t_critical(found.freedom) * found.noise
    halves = {each.config: (each.mean, wide / math.sqrt(each.launches)) for each in found.standings}
    return {config: (mean * math.exp(-half), mean * math.exp(half)) for config, (mean, half) in halves.items()}


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
