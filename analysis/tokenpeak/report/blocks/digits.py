"""Figures as text: as many digits as can be seen, percent and counts."""

import math
import re
from collections.abc import Sequence

import polars as pl

NONE = "–"
"""What stands in the place of a figure that there is not."""
ROUND_UP = 1 + 1e-14
"""Half of a last digit is rounded up, whatever the last bits are: 55.05 is 55.1, as a mean of launches and alone."""


def number(value: float | None, digits: int | None = None) -> str:
    """A number for reading: thin thousands, `digits` after the point or at most four significant ones; – for none."""
    if value is None or value != value:
        return NONE
    size = abs(value)
    whole = size >= 1000 or size == int(size)
    most = 0 if whole else 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 0.1 else _places(size)
    text = f"{value * ROUND_UP:,.{most if digits is None else digits}f}"
    if digits is None and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", "−" if re.search(r"[1-9]", text) else "")


def percent(share: float, digits: int = 0) -> str:
    """A difference as a signed percentage; a small one has a digit more, and none at all no sign."""
    shown = digits or int(0 < abs(share) < 0.01)
    text = f"{share * 100:+.{shown}f}"
    return "0%" if not float(text) else f"{text}%".replace("-", "−")


def trimmed(value: float) -> str:
    """A number that somebody chose, such as a rate: four significant digits at most, none of them for show."""
    return f"{value:,.4g}"


def counted(n: int, one: str, many: str = "") -> str:
    """A number with what it is of: `1 trial`, `3 trials`; `many` where the plural is another than with an s."""
    return f"{number(n)} {one if n == 1 else many or f'{one}s'}"


def shared_digits(values: pl.Series) -> int:
    """Digits after the point that give a column's typical value three significant ones, so that points line up."""
    numbers = values.drop_nulls().drop_nans() if values.dtype.is_float() else values.drop_nulls()
    if numbers.is_empty() or numbers.dtype.is_integer():
        return 0
    size = abs(float(numbers.abs().median() or 0.0))  # type: ignore[arg-type]
    return three_digits(size / 2) if size else 4


def three_digits(value: float) -> int:
    """Digits after the point that give a value, which is not 0, three significant ones."""
    return max(0, _places(abs(value)))


def _places(size: float) -> int:
    """Digits after the point that give a number three significant ones."""
    return 2 - math.floor(math.log10(size))


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them: `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
