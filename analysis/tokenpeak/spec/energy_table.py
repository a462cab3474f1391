"""Table of energy factors by region and hour: a CSV as its user writes it, or as grid operators export it.

Own columns: `region`; `from` and `to` (moments, UTC where they name no zone), or `hour` (0 to 23 UTC, of each day); and
any of `kg_co2_per_kwh`, `kg_co2_per_kwh_market`, `water_l_per_kwh`, `price_per_kwh`. Without `to`, a row holds until
the next one of its region, for an hour at most; the last one holds as long as the one before.

Also read as they are: Electricity Maps' yearly exports (its life-cycle intensity, else the direct one), NESO's historic
generation mix of Great Britain, and Energinet's CO2Emis of Denmark.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tokenpeak import bounded
from tokenpeak.errors import SpecError, TokenpeakError, suggestion
from tokenpeak.spec.energy_hours import DAY_H, HOURLY

MOST_IN_SPEC = 1000
LONGEST = timedelta(hours=1)
_GRAMS = 1e-3
_COLUMNS: dict[str, tuple[str, float]] = {
    **{name: (name, 1.0) for name in ("region", "from", "to", "hour", *HOURLY)},
    # Electricity Maps
    "datetime (utc)": ("from", 1.0),
    "zone id": ("region", 1.0),
    "carbon intensity gco2eq/kwh (life cycle)": ("kg_co2_per_kwh", _GRAMS),
    "carbon intensity gco2eq/kwh (life cycle assessment)": ("kg_co2_per_kwh", _GRAMS),
    "carbon intensity gco2eq/kwh (lca)": ("kg_co2_per_kwh", _GRAMS),
    "carbon intensity gco2eq/kwh (direct)": ("kg_co2_per_kwh", _GRAMS),
    # NESO
    "datetime": ("from", 1.0),
    "carbon_intensity": ("kg_co2_per_kwh", _GRAMS),
    # Energinet
    "minutes5utc": ("from", 1.0),
    "pricearea": ("region", 1.0),
    "co2emission": ("kg_co2_per_kwh", _GRAMS),
}
"""Heads that are known, in small letters: what they are, and by what a number is multiplied. The first one counts."""


def with_factor_table(raw: Any, folder: Path) -> Any:
    """A spec's YAML with the rows of the table that `energy.factors` names, relative to `folder`, under `hours`."""
    energy = raw.get("energy") if isinstance(raw, Mapping) else None
    if not isinstance(energy, Mapping) or "factors" not in energy:
        return raw
    rest = {key: value for key, value in energy.items() if key not in ("factors", "region")}
    path = folder / str(energy["factors"])
    rows = read_factor_table(path, str(energy.get("region") or ""), error=SpecError)
    if len(rows) > MOST_IN_SPEC:
        raise SpecError(
            f"{path} has {len(rows)} rows; a spec holds {MOST_IN_SPEC} at most. Give the table when the site is "
            "built: tokenpeak report --param factors=FILE.csv."
        )
    return {**raw, "energy": {**rest, "hours": [*rest.get("hours", []), *rows]}}


def read_factor_table(path: Path, region: str = "", *, error: type[TokenpeakError]) -> list[dict[str, object]]:
    """The rows of one region, as a spec's `energy.hours` takes them; `error` says which line is wrong."""
    text = bounded.read_bytes(path, error=error).decode("utf-8-sig", errors="replace")
    head, _, _ = text.partition("\n")
    separator = ";" if head.count(";") > head.count(",") else ","
    lines = csv.reader(io.StringIO(text), delimiter=separator)
    columns = _columns(next(lines, []), path, error)
    rows = [_HourRow(path, lines.line_num, columns, cells, separator == ";", error) for cells in lines if any(cells)]
    regions = list(dict.fromkeys(row.region for row in rows))
    if region and "region" in columns:
        if region not in regions:
            raise error(f"{path} has no region {region!r}. {suggestion(region, regions)}")
        rows = [row for row in rows if row.region == region]
    elif len(regions) > 1:
        raise error(f"{path} has {len(regions)} regions. Say which one with region: {', '.join(regions[:20])}.")
    if not rows:
        raise error(f"{path} has no rows.")
    return list(_spans(rows))


def _columns(heads: list[str], path: Path, error: type[TokenpeakError]) -> dict[str, tuple[int, float]]:
    """Where each known column stands, and by what its numbers are multiplied."""
    places = {re.sub(r"\s+", " ", head.strip().lower().replace("₂", "2")): index for index, head in enumerate(heads)}
    found: dict[str, tuple[int, float]] = {}
    for head, (name, scale) in _COLUMNS.items():
        if head in places:
            found.setdefault(name, (places[head], scale))
    if not found.keys() & {"from", "hour"}:
        raise error(f"{path} has no column from, hour or Datetime (UTC). Its columns: {', '.join(heads)}.")
    if not found.keys() & set(HOURLY):
        raise error(f"{path} has no factor: none of {', '.join(HOURLY)}. Its columns: {', '.join(heads)}.")
    return found


class _HourRow:
    """A line of the table."""

    def __init__(
        self,
        path: Path,
        line: int,
        columns: Mapping[str, tuple[int, float]],
        cells: list[str],
        decimal_comma: bool,
        error: type[TokenpeakError],
    ) -> None:
        self._place, self._columns, self._cells, self._error = f"{path}, line {line}", columns, cells, error
        self._decimal_comma = decimal_comma
        self.region = self._text("region")
        self.begin = self._moment("from")
        self.end = self._moment("to")
        self.hour = self._number("hour")
        if self.begin is None and self.hour is None:
            raise error(f"{self._place} has neither from nor hour.")
        if self.hour is not None and self.hour not in range(DAY_H):
            raise error(f"{self._place}: hour is {self._text('hour')!r}. Write 0 to 23 (UTC).")

    def _text(self, name: str) -> str:
        place = self._columns.get(name)
        return self._cells[place[0]].strip() if place and place[0] < len(self._cells) else ""

    def _moment(self, name: str) -> datetime | None:
        if not (text := self._text(name)):
            return None
        try:
            found = datetime.fromisoformat(text)
        except ValueError as reason:
            raise self._error(f"{self._place}: {name} is {text!r}. Write 2026-11-23 14:00 (UTC).") from reason
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def _number(self, name: str) -> float | None:
        if not (text := self._text(name)):
            return None
        try:
            return float(text.replace(",", ".") if self._decimal_comma else text) * self._columns[name][1]
        except ValueError as reason:
            raise self._error(f"{self._place}: {name} is {text!r}, which is no number.") from reason

    def factors(self) -> dict[str, object]:
        """Those that the row gives."""
        return {name: value for name in HOURLY if (value := self._number(name)) is not None}


def _spans(rows: list[_HourRow]) -> Iterator[dict[str, object]]:
    """Each row with the hours in which it holds."""
    dated = sorted(((row.begin, row) for row in rows if row.begin is not None), key=lambda each: each[0])
    following = [begin for begin, _ in dated[1:]]
    last_step = following[-1] - dated[-2][0] if following else LONGEST
    for (begin, row), after in zip(dated, [*following, None], strict=False):
        end = row.end or begin + (LONGEST if after or not last_step else min(LONGEST, last_step))
        yield {"begin": begin, "end": after if after and begin < after < end else end, **row.factors()}
    for row in rows:
        if row.begin is None and row.hour is not None:
            yield {"hours": (int(row.hour), int(row.hour) + 1), **row.factors()}
