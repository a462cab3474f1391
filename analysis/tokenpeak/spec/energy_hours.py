"""Energy factors of single hours: the rows of a table, and their means by the hour of the day.

A tariff changes with the hour, and so does a grid's carbon intensity. Configs are compared by the mean, for the hour in
which a trial was run is no property of its config.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, NonNegativeFloat, model_validator

from tokenpeak.spec.workload import Declaration

HOURLY = ("kg_co2_per_kwh", "kg_co2_per_kwh_market", "water_l_per_kwh", "price_per_kwh")
"""Factors that change with the hour."""
DAY_H = 24
_DAY, _HOUR, _INSTANT = timedelta(days=1), timedelta(hours=1), timedelta(microseconds=1)


def _of_day(raw: object) -> object:
    """The first hour and the one that is no longer meant, from text such as `22-6`."""
    if not isinstance(raw, str):
        return raw
    first, dash, last = (part.strip() for part in raw.partition("-"))
    if not dash or not first.isdigit() or not last.isdigit():
        raise ValueError(f"{raw!r} is no span of hours; write 22-6 for 22:00 to 06:00 UTC")
    return int(first), int(last)


class FactorHours(Declaration):
    """Factors of some hours: of each day (`hours: 22-6`, in UTC), or from one moment to another (`begin`, `end`)."""

    hours: Annotated[tuple[int, int] | None, BeforeValidator(_of_day)] = None
    """Hours of each day in UTC, such as `22-6`."""
    begin: AwareDatetime | None = None
    """The moment from which the row holds, instead of `hours`."""
    end: AwareDatetime | None = None
    """The moment until which it holds."""
    kg_co2_per_kwh: NonNegativeFloat | None = None
    """Location-based CO₂ of the grid's electricity."""
    kg_co2_per_kwh_market: NonNegativeFloat | None = None
    """Market-based CO₂."""
    water_l_per_kwh: NonNegativeFloat | None = None
    """Water of making electricity."""
    price_per_kwh: float | None = None
    """Price of electricity at the meter; below zero where the grid pays for what is taken off it."""

    @model_validator(mode="after")
    def _when(self) -> "FactorHours":
        if (self.hours is None) == (self.begin is None) or (self.begin is None) != (self.end is None):
            raise ValueError("a row of hours needs hours, such as 22-6, or begin and end")
        if self.hours is not None and not (0 <= self.hours[0] < DAY_H and 0 <= self.hours[1] <= DAY_H):
            raise ValueError(
                f"{self.hours[0]}-{self.hours[1]} are no hours of a day; write 22-6 for 22:00 to 06:00 UTC"
            )
        if self.begin is not None and self.end is not None and self.end <= self.begin:
            raise ValueError(f"end {self.end:%Y-%m-%d %H:%M} is not after begin {self.begin:%Y-%m-%d %H:%M}")
        return self

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """Its two moments; None for a row of each day."""
        return (self.begin, self.end) if self.begin is not None and self.end is not None else None

    def held_hours(self) -> Iterator[tuple[int, float]]:
        """The hours of the day, UTC, in which it holds, and for how many seconds: over its span, or in one day."""
        if self.hours is not None:
            first, last = self.hours
            yield from ((hour % DAY_H, 3600.0) for hour in range(first, last if first < last else last + DAY_H))
            return
        assert self.span is not None, "a row has one or the other"
        at, end = (moment.astimezone(UTC) for moment in self.span)
        days = (end - at) // _DAY
        if days:
            yield from ((hour, days * 3600.0) for hour in range(DAY_H))
        at += days * _DAY
        while at < end:
            until = min(end, at.replace(minute=0, second=0, microsecond=0) + _HOUR)
            yield at.hour, (until - at).total_seconds()
            at = until


class HourlyFactor:
    """One factor over the hours of the day; `plain` holds in hours of each day that no row is for.

    Where rows between two moments have it, those of each day do not count. Of two of each day the first one counts.
    """

    def __init__(self, name: str, rows: Sequence[FactorHours], plain: float | None) -> None:
        given = [(row, float(value)) for row in rows if (value := getattr(row, name)) is not None]
        dated = [(row, value) for row, value in given if row.span is not None]
        self.rows = dated or given
        self._spans = [row.span for row, _ in dated if row.span is not None]
        self.by_hour = _means(dated) if dated else _first(given, plain)
        """Its mean in each hour of the day, UTC; None where it is not known."""

    def mean(self) -> float:
        """Over the hours of the day, each of which counts as much."""
        return fmean(value for value in self.by_hour if value is not None)

    def ends(self) -> tuple[float, float]:
        """The lowest and the highest that any hour has."""
        day = [value for value in self.by_hour if value is not None]
        values = [value for _, value in self.rows] if self._spans else day
        return min(values), max(values)

    def source(self) -> str:
        """What its mean is over."""
        if not self._spans:
            return "mean over the hours of the day"
        begin, end = min(first for first, _ in self._spans), max(last for _, last in self._spans)
        days = dict.fromkeys(f"{moment.astimezone(UTC):%Y-%m-%d}" for moment in (begin, end - _INSTANT))
        return f"mean over {' to '.join(days)}, {len(self._spans)} rows"


def _means(rows: Sequence[tuple[FactorHours, float]]) -> tuple[float | None, ...]:
    """Of each hour of the day, by the time for which each row holds in it."""
    times, sums = [0.0] * DAY_H, [0.0] * DAY_H
    for row, value in rows:
        for hour, seconds in row.held_hours():
            times[hour] += seconds
            sums[hour] += seconds * value
    return tuple(whole / time if time else None for whole, time in zip(sums, times, strict=True))


def _first(rows: Sequence[tuple[FactorHours, float]], plain: float | None) -> tuple[float | None, ...]:
    """Of each hour of the day: the value of the first row that holds in it, else the plain one."""
    day = [plain] * DAY_H
    for row, value in reversed(rows):
        for hour, _ in row.held_hours():
            day[hour] = value
    return tuple(day)
