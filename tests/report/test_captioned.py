"""Figures and tables that a notebook makes of its own charts and frames."""

import altair as alt
import polars as pl
import pytest

from tokenpeak.report.blocks.block import Column
from tokenpeak.report.blocks.captioned import columns, figure

FRAME = pl.DataFrame({"label": ["a", "b"], "value": [1.5, 2.0], "unseen": [1, 2], "page": ["a.html", "b.html"]})


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Energy", Column(key="value", title="Energy", kind="number")),
        ("Energy (J/token)", Column(key="value", title="Energy", unit="J/token", kind="number")),
        ("`Energy`", Column(key="value", title="Energy", kind="code")),
        ("Share (s) of all", Column(key="value", title="Share (s) of all", kind="number")),
    ],
)
def test_a_title_names_unit_and_kind(title: str, expected: Column) -> None:
    """A unit stands in brackets at the end, backquotes mark code, and a column of numbers is one."""
    assert [expected] == columns(FRAME, {"value": title})


def test_a_figure_has_the_charts_own_data_and_the_frames_rows() -> None:
    """The chart is drawn as given, whatever was changed in it; the named columns are the figure's data."""
    chart = alt.Chart(FRAME).mark_bar().encode(x="value:Q", y="label:N").properties(width=123)
    found = figure(chart, FRAME, {"label": "Config", "value": "V (s)"}, name="f", title="F", caption="C.")

    assert (123, "bar") == (found.spec["width"], found.spec["mark"]["type"])
    assert [("a", 1.5), ("b", 2.0)] == [(row[0]["text"], row[1]["value"]) for row in found.data.rows]
