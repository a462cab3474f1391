"""CO₂, water and cost of a million output tokens by the hour of the day, of one config."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tokenpeak.report.blocks import Column, Sentence, Table, code, note, table
from tokenpeak.report.energy import digits_left, figure_words
from tokenpeak.report.energy_factors import FIGURES, SHOWN, factors, figures_at
from tokenpeak.report.figures import slug
from tokenpeak.report.view import SweepView
from tokenpeak.spec.energy_hours import DAY_H

_FOLLOWS = {"co2": "co2", "market": "market", "water": "water", "electricity": "cost"}
"""Keys of the factors that differ by the hour: what follows from each."""
_TITLES = {
    "co2": ("CO₂", "kg"),
    "market": ("CO₂, market-based", "kg"),
    "water": ("Water", "L"),
    "cost": ("Cost", "{currency}"),
}


def hour_rows(view: SweepView, row: Mapping[str, Any]) -> pl.DataFrame:
    """A row per span of hours with the same factors: `hours`, `at_KEY` of each factor that differs, and its figures.

    `row`: the config's, with JOULE, output_tok_per_s, gpus, low and high, which every row repeats. Empty where no
    factor differs by the hour.
    """
    hourly = view.spec.energy.hourly
    keys = {key: hourly[name].by_hour for key, name, *_ in SHOWN if name in hourly}
    plain = {factor.key: factor.value for factor in factors(view).factors}
    found = []
    for first, last in _spans([tuple(day[hour] for day in keys.values()) for hour in range(DAY_H)] if keys else []):
        now = {key: day[first] for key, day in keys.items()}
        figures = figures_at(row, plain | now)
        shown = {FIGURES[_FOLLOWS[key]]: figures[_FOLLOWS[key]] for key in keys}
        found.append(
            {"hours": f"{first:02d}–{last:02d}"}
            | {f"at_{key}": value for key, value in now.items()}
            | shown
            | {f"places_{column}": _places(row, value) for column, value in shown.items()}
            | {name: row[name] for name in ("energy_j_per_output_tok", "low", "high", "output_tok_per_s", "gpus")}
        )
    return pl.DataFrame(found, infer_schema_length=None)


def hours_table(view: SweepView, hardware: str, row: Mapping[str, Any], rows: pl.DataFrame) -> Table:
    """The spans of `hour_rows` with their factors and figures; scripts recompute it when the reader changes one."""
    currency = view.spec.energy.currency
    differing = [(key, title, unit) for key, _, title, unit in SHOWN if f"at_{key}" in rows.columns]
    given = [
        Column(key=f"at_{key}", title=title, unit=unit.format(currency=currency), kind="number")
        for key, title, unit in differing
    ]
    figures = [
        Column(
            key=FIGURES[figure],
            title=_TITLES[figure][0],
            unit=f"{_TITLES[figure][1].format(currency=currency)}/1M tokens",
            kind="number",
            digits_from="" if figure == "cost" else f"places_{FIGURES[figure]}",
        )
        for figure in dict.fromkeys(_FOLLOWS[key] for key, *_ in differing)
    ]
    # For the page's script.
    hidden = [
        Column(key=key, title=title, unit=unit, kind="number", hidden=True)
        for key, title, unit in (
            ("energy_j_per_output_tok", "Energy", "J/token"),
            ("low", "Energy, low", "J/token"),
            ("high", "Energy, high", "J/token"),
            ("output_tok_per_s", "Output throughput", "tok/s"),
            ("gpus", "GPUs of the engine", ""),
        )
    ]
    return table(
        rows,
        [Column(key="hours", title="Hours", unit="UTC"), *given, *figures, *hidden],
        name=f"hours-{slug(hardware)}",
        title=f"By the hour of the day: {row['label']} on {hardware}",
        note="The tables above have the mean of these hours: a config is not better for having been tried by night.",
    )


def hours_words(view: SweepView, row: Mapping[str, Any], rows: pl.DataFrame) -> list[Sentence]:
    """The hours in which the config takes least and most, of cost and of CO₂."""
    words = []
    for figure in ("cost", "co2"):
        known = rows.filter(pl.col(FIGURES[figure]).is_not_null()) if FIGURES[figure] in rows.columns else rows.clear()
        if known.height < 2:
            continue
        ordered = known.sort(FIGURES[figure], maintain_order=True)
        unit = _TITLES[figure][1].format(currency=view.spec.energy.currency)
        least, most = (
            f"{_shown(figure, each)} {unit} ({each['hours']} UTC)"
            for each in (ordered.row(0, named=True), ordered.row(-1, named=True))
        )
        verb = "cost" if figure == "cost" else "emit"
        words.append(note("By the hour, a million tokens of ", code(row["label"]), f" {verb} {least} to {most}."))
    return words


def _shown(figure: str, row: Mapping[str, Any]) -> str:
    if figure == "cost":
        return f"{row[FIGURES[figure]]:.3g}"
    return figure_words(row, FIGURES[figure])


def _places(row: Mapping[str, Any], value: float | None) -> int | None:
    if value is None or row["low"] is None or row["high"] is None:
        return None
    return digits_left((row["high"] - row["low"]) / 2 / row["energy_j_per_output_tok"] * value)


def _spans(day: list[tuple[float | None, ...]]) -> Iterator[tuple[int, int]]:
    """First hour and end of each span of equal hours; one across midnight is one."""
    begins = [hour for hour in range(len(day)) if day[hour] != day[hour - 1]]
    if day and not begins:
        yield 0, DAY_H
    for begin, after in zip(begins, [*begins[1:], *begins[:1]], strict=True):
        yield begin, after or DAY_H
