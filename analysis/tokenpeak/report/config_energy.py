"""Energy figures as pages show them: digits and ranks by the measured interval, names of sources and boundaries."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from tokenpeak.ranking.intervals import LaunchEnergy, energy_intervals, t_critical
from tokenpeak.ranking.ties import winner_group
from tokenpeak.report.blocks.block import Column, Part, Sentence, answer, code, strong
from tokenpeak.report.blocks.digits import counted, number, three_digits
from tokenpeak.report.ranking.standings import by_class
from tokenpeak.report.view import SweepView

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
    "water_l_per_1m_output_tok",
    "cost_per_1m_output_tok",
)


def sources_of(*, is_simulated: bool) -> dict[str, str]:
    """Names of an energy's sources; nothing was measured of a simulation."""
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


JOULE = "energy_j_per_output_tok"


def energy_runs(view: SweepView) -> pl.DataFrame:
    """The objective's runs that may be ranked and have an energy, with the ends of its sensor's interval, J/token."""
    runs = view.objective_runs().filter(pl.col("verdict") != "invalid", pl.col(JOULE).is_not_null())
    return by_class(view, runs).with_columns(
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


def no_energy(view: SweepView) -> Sentence:
    """Why nothing is said of energy."""
    if view.runs.height and view.runs["energy_j_per_output_tok"].is_null().all():
        if view.runs["energy_needed_s"].is_not_null().any():
            return too_short(view.runs)
        return answer(
            "In this sweep no run has an energy figure: power was neither measured nor is it known for estimating it."
        )
    return answer("In this sweep no run that may be ranked has an energy figure.")


def too_short(runs: pl.DataFrame) -> Sentence:
    """How many runs were too short for their energy to be known within ±5%, and what length would do."""
    short = runs.filter(pl.col("energy_needed_s").is_not_null())
    many = f"{short.height} of {runs.height} runs were" if short.height > 1 else f"One of {runs.height} runs was"
    needed_s = max(short["energy_needed_s"].to_list(), default=0.0)
    return answer(f"{many} too short for an energy figure within ±5%. {number(needed_s)} s would do.")


def answer_energy(hardware: str, frame: pl.DataFrame, winner: str | None) -> Sentence:
    """The thriftiest config, which others are tied with it, and how the fastest compares."""
    if frame.is_empty():
        return answer(f"On {hardware}, no run that may be ranked has an energy figure.")
    first = frame.row(0, named=True)
    per_token = rounded(first["energy_j_per_output_tok"], first["low"], first["high"])
    parts: list[Part] = [
        f"On {hardware}, ",
        code(first["label"]),
        " uses the least energy of those with a figure: " if frame.height > 1 else " uses ",
        strong(f"{per_token} J per output token"),
    ]
    if first["low"] is not None:
        ends = (rounded(first[end], first["low"], first["high"]) for end in ("low", "high"))
        parts.append(f" ({' to '.join(ends)})")
    parts.append(f". At the meter that is {figure_words(first, 'energy_kwh_per_1m_output_tok')} kWh per million.")
    tied = frame.filter(rank=1).height - 1
    if tied > 0:
        parts.append(f" {counted(tied, 'other is', 'others are')} tied with it.")
    fastest = frame.filter(pl.col("config_id").eq_missing(pl.lit(winner)))
    if winner == first["config_id"]:
        parts.append(" It is also the recommended one.")
    elif fastest.is_empty():
        parts.append(" The recommended config has no figure." if winner is not None else "")
    else:
        ratio = float(fastest["energy_j_per_output_tok"][0]) / first["energy_j_per_output_tok"] - 1
        more = f"{ratio:.1%} more" if ratio >= 0.0005 else "as much"
        parts.append(f" The recommended config needs {more}.")
    if first["estimated"]:
        parts.append(" Estimated from the device's rated power, not measured.")
    return answer(*parts)
