"""Energy figures as pages show them: digits and ranks by the measured interval, names of sources and boundaries."""

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from tokenpeak.report.blocks import Column, number, three_digits

_SOURCES = {
    "energy_counter": "measured (energy counter)",
    "sampled_power": "measured (sampled power)",
    "estimated_tdp": "estimated (TDP)",
}
BOUNDARIES = {
    "gpu_boards": "GPU boards",
    "cpu_package": "CPU package",
    "cpu_and_dram": "CPU and memory",
    "node": "whole node",
}
RANK = "By energy per output token; configs whose intervals reach into that of the first of a rank share the rank"
DERIVED = (
    "energy_kwh_per_1m_output_tok",
    "co2_kg_per_1m_output_tok",
    "co2_market_kg_per_1m_output_tok",
    "water_l_per_1m_output_tok",
    "cost_per_1m_output_tok",
)


def sources_of(*, is_simulated: bool) -> dict[str, str]:
    """What an energy's source is called; nothing was measured of a simulation."""
    return {
        source: words.replace("measured", "simulated") if is_simulated else words for source, words in _SOURCES.items()
    }


def digits_left(half: float | None) -> int | None:
    """Digits after the point that an interval of this half width leaves; None without a width."""
    return max(0, -math.floor(math.log10(half))) if half is not None and half > 0 else None


def rounded(value: float, low: float | None, high: float | None) -> str:
    """A figure with the digits that its interval leaves; without one, as many as a table of it has."""
    left = digits_left(None if low is None or high is None else (high - low) / 2)
    return number(value, three_digits(value) if left is None and value else left)


def figure_words(row: Mapping[str, Any], key: str) -> str:
    """A figure that goes with the row's energy, with the digits that the energy's interval leaves."""
    if row["low"] is None or row["high"] is None:
        return rounded(row[key], None, None)
    share = (row["high"] - row["low"]) / 2 / row["energy_j_per_output_tok"]
    return number(row[key], digits_left(share * row[key]))


def places(key: str) -> pl.Expr:
    """The digits after the point that the interval of a row's energy leaves a figure that goes with it.

    A row without an interval has the widest of the others, in proportion; null where no row has one.
    """
    share = (pl.col("high") - pl.col("low")) / 2 / pl.col("energy_j_per_output_tok")
    half = share.fill_null(share.max()) * pl.col(key)
    return pl.when(half > 0).then((-half.log10().floor()).clip(lower_bound=0)).cast(pl.Int64).alias(f"places_{key}")


def measured(key: str, title: str) -> Column:
    """A column of J/token with the digits that the interval leaves; the frame has `places` of the energy."""
    joule = "energy_j_per_output_tok"
    return Column(key=key, title=title, unit="J/token", kind="number", digits_from=f"places_{joule}")


def with_ranks(per_config: pl.DataFrame) -> pl.DataFrame:
    """The configs with `rank` by energy, thriftiest first, and `result`: least, or tied for it.

    Those whose intervals reach into the first's share its rank; the first of the others begins the next. Where no
    interval is known, none is tied.
    """
    rows = list(per_config.select("energy_j_per_output_tok", "low", "high").iter_rows())
    ranks: dict[int, int] = {}
    while waiting := [index for index in range(len(rows)) if index not in ranks]:
        first, rank = waiting[0], len(ranks) + 1
        highest = rows[first][2]
        for index in waiting:
            low = rows[index][1]
            if index == first or (highest is not None and low is not None and low <= highest):
                ranks[index] = rank
    found = pl.Series([ranks[index] for index in range(len(rows))], dtype=pl.Int64)
    best = int((found == 1).sum())
    return per_config.with_columns(
        rank=found,
        result=pl.when(found == 1).then(pl.lit("tied" if best > 1 else "least")),
    )
