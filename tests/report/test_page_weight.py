"""What makes a page light changes nothing that a reader can see, sort by or draw."""

import json
import re
from typing import Any

from playwright.sync_api import Browser

from tokenpeak import paths
from tokenpeak.report.page_weight import PACKED_FROM, light_picture, packed_rows, packed_spec, sortable

ROWS: list[dict[str, Any]] = [
    {"series": f"config {n // 4}", "x": [4, 8.0, 16][n % 3], "holds": [True, 1, None][n % 3], "value": n + 0.25, "n": 2}
    for n in range(40)
]
UNPACK = re.compile(r"function unpacked\(.*?\n  \}\n", re.DOTALL)


def test_the_page_reads_the_rows_that_were_packed(browser: Browser) -> None:
    """What the script makes of packed rows is the rows, with numbers, booleans and nulls as they were."""
    packed = packed_rows(ROWS)
    found = UNPACK.search((paths.STATIC / "figures.js").read_text())
    assert isinstance(packed, dict)
    assert found is not None, "figures.js unpacks data sets"
    page = browser.new_page()
    back = page.evaluate(f"packed => {{ {found[0]} return JSON.stringify(unpacked(packed)); }}", packed)
    page.close()

    assert json.loads(json.dumps(ROWS)) == json.loads(back)
    assert len(json.dumps(packed)) < len(json.dumps(ROWS)) / 2


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
