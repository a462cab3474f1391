"""Energy figures as pages show them: digits and ranks by the measured interval, names of sources and boundaries."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from tokenpeak.ranking.intervals import LaunchEnergy, energy_intervals
from tokenpeak.ranking.ties import winner_group
from tokenpeak.report.blocks.block import Column, Part, Sentence, answer, code, strong
from tokenpeak.report.blocks.digits import counted, number, three_digits
from tokenpeak.report.blocks.metric_columns import UNPROVEN
from tokenpeak.report.ranking.classes import by_class, candidates
from tokenpeak.report.view import SweepView

_SOURCES = {
    "energy_counter": "measured (energy counter)",
    "sampled_power": "measured (sampled power)",
    "estimated_tdp": "estimated (TDP)",
}
BOUNDARIES = {
    "gpu_boards": "GPUs",
    "cpu_package": "CPU package",
    "cpu_and_dram": "CPU and memory",
    "node": "whole node",
}
ESTIMATED = "estimated_tdp"
"""The source of an energy that is rated power ÷ throughput: configs are not ranked by it."""
RANK = "By measured energy per output token; configs whose intervals reach into that of a rank's first share the rank"
JOULE = "energy_j_per_output_tok"
OF_ENERGY = ("energy_kwh_per_1m_output_tok", "co2_kg_per_1m_output_tok", "water_l_per_1m_output_tok")
"""What is energy times factors, so that configs have one order by all."""
DERIVED = (*OF_ENERGY, "cost_per_1m_output_tok")


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
    """The configs with `rank` by measured energy, thriftiest first, and `result`: least, or tied for it.

    Those whose intervals reach into the first's share its rank; the first of the others begins the next. Where no
    interval is known, none is tied and the least is not proven. Estimated energies have neither rank nor result.
    """
    measured = per_config.with_row_index("place").filter(~pl.col("estimated"))
    rows = {place: ends for place, *ends in measured.select("place", "low", "high").iter_rows()}
    ranks: dict[int, int] = {}
    while waiting := [place for place in rows if place not in ranks]:
        first, rank = waiting[0], len(set(ranks.values())) + 1
        highest = rows[first][1]
        for place in waiting:
            low = rows[place][0]
            if place == first or (highest is not None and low is not None and low <= highest):
                ranks[place] = rank
    found = pl.Series([ranks.get(place) for place in range(per_config.height)], dtype=pl.Int64)
    least = "tied" if (found == 1).sum() > 1 else "least"
    return per_config.with_columns(
        rank=found,
        result=pl.when(found == 1).then(
            pl.when(pl.col("low").is_null()).then(pl.lit(f"lowest, {UNPROVEN}")).otherwise(pl.lit(least))
        ),
    )


def with_energy_intervals(view: SweepView, per_config: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """`per_config` with `low` and `high` in J per output token; `runs` has a row per launch, with its sensor's ends.

    They hold the spread of launches on a kind of hardware: of the energy where a config was measured again, else of
    the objective. Null where neither is known, and of estimates.
    """
    found: dict[tuple[str, str], tuple[float, float]] = {}
    measured = runs.filter(pl.col("energy_source").ne_missing(pl.lit(ESTIMATED)))
    for (hardware,), own in measured.group_by("hardware", maintain_order=True):
        launches: dict[str, list[LaunchEnergy]] = {}
        for config, joule, low, high in own.select("config_id", JOULE, "low", "high").iter_rows():
            launches.setdefault(config, []).append(LaunchEnergy(joule=joule, low=low, high=high))
        seen = winner_group({config: [each.joule for each in every] for config, every in launches.items()})
        if not seen.freedom:
            seen = candidates(view, str(hardware)).decision.measured
        if seen.noise is not None:
            ends = energy_intervals(launches, spread=seen.noise, freedom=seen.freedom)
            found |= {(str(hardware), config): each for config, each in ends.items()}
    known = [found.get(key, (None, None)) for key in per_config.select("hardware", "config_id").iter_rows()]
    return per_config.with_columns(
        low=pl.Series([low for low, _ in known], dtype=pl.Float64),
        high=pl.Series([high for _, high in known], dtype=pl.Float64),
    )


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

    `idle` is the share, in percent, that the idle power comes to; `estimated`: from rated power, not measured. `low`
    and `high` are the ends of the 95% interval; null of estimates, and where no config was launched again.

    >>> energy_configs(sweep).select("label", pl.col("energy_j_per_output_tok").round(3)).rows()[:1]
    [('64 / 8192', 0.153)]
    """
    runs = energy_runs(view)
    return (
        runs.group_by("hardware", "config_id", maintain_order=True)
        .agg(
            pl.col("label", "trial_id").first(),
            pl.col("output_tok_per_s", "power_w", JOULE, *DERIVED).log().mean().exp(),
            source=pl.col("energy_source").first().replace(sources_of(is_simulated=view.record.simulated)),
            boundary=pl.col("energy_boundary").first().replace(BOUNDARIES),
            estimated=pl.col("energy_source").eq_missing(pl.lit(ESTIMATED)).any(),
            idle=pl.col("idle_share").mean() * 100,
            n=pl.len(),
        )
        .sort(JOULE)
        .pipe(lambda frame: with_energy_intervals(view, frame, runs))
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


def answer_energy(hardware: str, frame: pl.DataFrame, winner: str | None, shown: str) -> Sentence:
    """The thriftiest config, which others are tied with it, and how the fastest compares; of estimates, `shown`'s."""
    if frame.is_empty():
        return answer(f"On {hardware}, no run that may be ranked has an energy figure.")
    fastest = frame.filter(pl.col("config_id").eq_missing(pl.lit(winner)))
    measured = frame.filter(~pl.col("estimated"))
    if measured.is_empty():
        return _estimated(hardware, frame.filter(label=shown).row(0, named=True))
    first = measured.row(0, named=True)
    per_token = rounded(first[JOULE], first["low"], first["high"])
    parts: list[Part] = [
        f"On {hardware}, ",
        code(first["label"]),
        " uses the least energy of all configs with an energy figure: " if frame.height > 1 else " uses ",
        strong(f"{per_token} J per output token"),
    ]
    if first["low"] is not None:
        ends = (rounded(first[end], first["low"], first["high"]) for end in ("low", "high"))
        parts.append(f" ({' to '.join(ends)})")
    elif frame.height > 1:
        parts.append(f" ({'one launch' if first['n'] == 1 else 'few launches'}, no interval)")
    parts.append(f". At the meter that is {figure_words(first, 'energy_kwh_per_1m_output_tok')} kWh per million.")
    tied = frame.filter(rank=1).height - 1
    if tied > 0:
        parts.append(f" {counted(tied, 'other is', 'others are')} tied with it.")
    if winner == first["config_id"]:
        parts.append(" It is also the recommended one.")
    elif fastest.is_empty() or fastest["estimated"][0]:
        parts.append(" The recommended config has no measured figure." if winner is not None else "")
    else:
        ratio = float(fastest[JOULE][0]) / first[JOULE] - 1
        more = f"{ratio:.1%} more" if ratio >= 0.0005 else "as much"
        parts.append(f" The recommended config needs {more}.")
    return answer(*parts)


def _estimated(hardware: str, row: Mapping[str, Any]) -> Sentence:
    """The estimate of one config, and why configs are not ranked by it."""
    return answer(
        f"On {hardware}, ",
        code(row["label"]),
        " comes to ",
        strong(f"{rounded(row[JOULE], None, None)} J per output token"),
        ", estimated from rated power and throughput, not measured. So configs are not ranked by energy. At the meter "
        f"that is {figure_words(row, 'energy_kwh_per_1m_output_tok')} kWh per million.",
    )
