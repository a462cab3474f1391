"""Axes name their ticks evenly and where they are; a legend's symbols are whole; a front is no line."""

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import altair as alt
import polars as pl
import pytest

from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.blocks import charts, display
from tokenpeak.report.compare.history import trend
from tokenpeak.report.load import interactivity
from tokenpeak.report.ranking.standings import rank


def labels(svg: str) -> list[tuple[str, str]]:
    """Anchor and words of each label of the horizontal axis."""
    groups = re.findall(r'role-axis-label"[^>]*>(.*?)</g>', svg, re.DOTALL)
    found = [re.findall(r'<text text-anchor="(\w+)"[^>]*?>([^<]+)</text>', group) for group in groups]
    return max((each for each in found if all(anchor != "end" for anchor, _ in each)), key=len)


@pytest.mark.parametrize(("least", "most"), [(480, 2340), (462, 1392), (-0.42, 0.79), (17, 61)])
def test_labels_stand_at_their_ticks_and_none_between_is_left_out(least: float, most: float) -> None:
    """No first or last label is moved into the plot, and the step from label to label is one."""
    frame = pl.DataFrame({"x": [least, most], "y": [1, 2]})
    x = alt.X("x:Q", scale=alt.Scale(zero=False, nice=True, padding=16))
    found = labels(
        display.svg(charts.spec_of(alt.Chart(frame).mark_point().encode(x=x, y="y:Q").properties(width=250)))
    )
    values = [float(words.replace(",", "").replace("−", "-")) for _, words in found]
    steps = [round(after - before, 9) for before, after in pairwise(values)]

    assert {"middle"} == {anchor for anchor, _ in found}
    assert len(values) > 2 and 1 == len(set(steps))


def history(values: list[float], apart: timedelta) -> tuple[dict[str, Any], list[str]]:
    """The figure's specification and the table's columns of sweeps so far apart."""
    start = datetime(2026, 11, 21, tzinfo=UTC)
    rows = [
        {
            "key": ["a", "b", "c", "d", "e", "f", "g"],
            "sweep_id": f"{place}",
            "date": (start + place * apart).isoformat(),
            "hardware": "c",
            "config": "x",
            "value": value,
            "low": None,
            "high": None,
            "unit": "tok/s",
            "higher": True,
            "margin": 0.02,
            "n": 1,
            "simulated": False,
        }
        for place, value in enumerate(values)
    ]
    ((figure, table),) = trend([[row] for row in rows])
    return figure.payload()["spec"], [column.key for column in table.columns if not column.hidden]


@pytest.mark.parametrize("apart", [timedelta(hours=2), timedelta(days=1), timedelta(days=90)])
def test_a_history_names_no_date_twice_and_shows_noise_as_noise(apart: timedelta) -> None:
    """Sweeps of one day have their hours; a difference of 0.7% takes less than a tenth of the height."""
    spec, columns = history([1000.0, 1007.0, 1002.0, 1001.0, 1003.0], apart)
    words = [words for _, words in labels(display.svg(spec))]
    low, high = next(
        layer["encoding"]["y"]["scale"]["domain"] for layer in spec["layer"] if "scale" in layer["encoding"]["y"]
    )

    assert len(words) == len(set(words)) > 1
    assert 7 < 0.1 * (high - low)
    assert ["day", "value", "change", "verdict"] == columns


def test_a_line_has_no_dashes_that_break_its_legend_and_a_front_is_points() -> None:
    """No series has dashes of its own, which a legend draws its symbols with."""
    view = open_archive(paths.ROOT / "tests" / "report" / "golden" / "archive")
    ranked = rank(view, view.hardware[0])
    found = interactivity.interactivity(view, ranked)
    assert found is not None
    text = json.dumps(found.payload()["spec"]["layer"])

    assert '"strokeDash": {' not in text
    assert "step-before" not in text
