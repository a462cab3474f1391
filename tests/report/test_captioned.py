"""Figures and tables that a notebook makes of its own charts and frames."""

import altair as alt
import polars as pl
import pytest

from tokenpeak.report.blocks.block import Column
from tokenpeak.report.blocks.captioned import columns, figure, listed

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


def test_a_table_links_and_keeps_a_given_column() -> None:
    """A column that says more than a text stays as it is."""
    signed = Column(key="value", title="Gain", kind="number", digits=0, signed=True)
    found = listed(FRAME, {"label": "Config", "value": signed}, name="t", title="T", links={"label": "page"})

    assert [("a", "a.html", "+2"), ("b", "b.html", "+2")] == [
        (row[0]["text"], row[0]["href"], row[1]["text"]) for row in found.rows
    ]
