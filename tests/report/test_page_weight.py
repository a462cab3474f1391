"""What makes a page light changes nothing that a reader can see, sort by or draw."""

from typing import Any

from tokenpeak.report.blocks.display import PACKED_FROM, light_picture, packed_rows, packed_spec, sortable

ROWS: list[dict[str, Any]] = [
    {"series": f"config {n // 4}", "x": [4, 8.0, 16][n % 3], "holds": [True, 1, None][n % 3], "value": n + 0.25, "n": 2}
    for n in range(40)
]


def test_few_or_unlike_rows_stay_rows() -> None:
    """A short data set is left readable, and rows of different keys, as of a user's own chart, are untouched."""
    short, ragged = ROWS[: PACKED_FROM - 1], [*ROWS, {"series": "another"}]

    assert short == packed_rows(short)
    assert ragged == packed_rows(ragged)
    assert {"mark": "point", "datasets": {"a": short}} == packed_spec({"mark": "point", "datasets": {"a": short}})


def test_digits_that_a_picture_cannot_show_are_left_out() -> None:
    """Coordinates are rounded to a hundredth of a pixel; words and colours are not."""
    words = 'opacity="0.75">0.123456</text>'
    drawn = f'<path d="M13.999999999999948,-0.001L1e-7,204.4567" opacity="1"/><text x="1.23456" {words}'

    assert f'<path d="M14,0L1e-7,204.46"/><text x="1.23" {words}' == light_picture(drawn)


def test_cells_keep_the_digits_that_they_are_sorted_by() -> None:
    """Seven significant digits of a float; an integer, such as a file's bytes, is whole."""
    assert ["1160.811", "98.6", "123456789", "0.00012345"] == [
        sortable(value) for value in (1160.811079549875, 98.60000000000001, 123456789, 0.00012345)
    ]
