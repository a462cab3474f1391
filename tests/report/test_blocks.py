"""Numbers for reading, and tables from frames."""

import polars as pl
import pytest

from tokenpeak.report.blocks.block import Column, table
from tokenpeak.report.blocks.digits import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2874.6, "2,875"),
        (137.21, "137.2"),
        (32.671, "32.67"),
        (0.13249, "0.132"),
        (0.0030127, "0.00301"),
        (-4.0, "−4"),
        (55.05, "55.05"),
        (None, "–"),
    ],
)
def test_numbers_have_four_significant_digits(value: float | None, text: str) -> None:
    """A number alone shows four digits at most, thin thousands and a real minus."""
    assert text == number(value)


@pytest.mark.parametrize("value", [55.05, 55.05000000000002, 55.04999999999998, -55.05])
def test_a_half_is_rounded_up_whatever_its_last_bits(value: float) -> None:
    """A figure of one launch and the mean of it, which differ in their last bits, read alike in all tables."""
    assert "55.1" == number(value, 1).lstrip("−")


def test_nothing_has_no_sign() -> None:
    """What rounds to nothing has no minus, whatever its digits."""
    assert ["0.0", "0", "−0.1"] == [number(-0.04, 1), number(-0.0), number(-0.06, 1)]


def test_a_table_keeps_values_beside_texts() -> None:
    """A cell has what is shown and what is sorted by; a missing one shows a dash."""
    found = table(
        pl.DataFrame({"x": [1234.5, None], "href": ["a.html", None]}),
        [Column(key="x", title="X", unit="s", kind="number"), Column(key="absent", title="No such column")],
        name="t",
        title="T",
        hrefs={"x": "href"},
    )

    assert (({"text": "1,235", "value": 1234.5, "href": "a.html"},), ({"text": "–"},)) == found.rows
    assert 1 == len(found.columns)
