"""Weight of a page: data sets column by column, and numbers with the digits that a reader can see or sort by.

A page has a figure's data three times: as picture, as specification for scripts, as table. Keys that each row repeats,
and digits beyond a float's seventh or a hundredth of a pixel, made two thirds of it.
"""

import re
from typing import Any

PACKED_FROM = 20
"""Rows of a data set from which on it is packed; a small one stays readable in the page's source."""
_DRAWN_AT = re.compile(r' (?:d|transform|[xy][12]?|width|height)="[^"]*\.\d{3}[^"]*"')
_FRACTION = re.compile(r"-?\d{1,20}\.\d{3,}(?:e-?\d{1,4})?")
_DEFAULT_OPACITY = ' opacity="1"'


def packed_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with each long data set column by column, as `unpacked` of the page's script reads it."""
    named = spec.get("datasets")
    return {**spec, "datasets": {name: packed_rows(rows) for name, rows in named.items()}} if named else spec


def packed_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | dict[str, Any]:
    """`{"rows": their number, "columns": {key: values}}`; the rows themselves where they are few or unlike.

    Values that recur are `{"of": [each once], "at": [place of each row]}`, without `at` where all are the same.
    """
    if len(rows) < PACKED_FROM or any(row.keys() != rows[0].keys() for row in rows):
        return rows
    return {"rows": len(rows), "columns": {key: _column([row[key] for row in rows]) for key in rows[0]}}


def _column(values: list[Any]) -> list[Any] | dict[str, list[Any]]:
    if any(isinstance(value, list | dict) for value in values):
        return values
    # 1, 1.0 and True are one key of a mapping, and three values of a column.
    places: dict[tuple[type, Any], int] = {}
    at = [places.setdefault((type(value), value), len(places)) for value in values]
    if len(places) > len(values) / 2:
        return values
    of = [value for _, value in places]
    return {"of": of} if len(of) == 1 else {"of": of, "at": at}


def sortable(value: float) -> str:
    """A cell's value for sorting and filtering, whose text has fewer digits: seven significant ones; integers whole."""
    return str(value) if isinstance(value, int) else f"{value:.7g}"


def light_picture(svg: str) -> str:
    """The picture with coordinates to a hundredth of a pixel and without opacities that are there anyway."""
    return _DRAWN_AT.sub(lambda found: _FRACTION.sub(_hundredths, found[0]), svg).replace(_DEFAULT_OPACITY, "")


def _hundredths(found: re.Match[str]) -> str:
    text = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
