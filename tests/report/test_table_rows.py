"""Rows of tables as a browser's parser reads them."""

from html.parser import HTMLParser
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpeak.report.blocks.block import Column, table
from tokenpeak.report.site.render import table_rows

COLUMNS = (
    Column(key="config", title="Config", kind="code"),
    Column(key="words", title="Words"),
    Column(key="state", title="State", kind="state", hidden=True),
    Column(key="rate", title="Rate", kind="number", digits=1),
)
MARKUP = "\"'><b>&amp;"
HOSTILE = {"config": MARKUP, "words": MARKUP, "state": MARKUP, "rate": 1.0, "way": MARKUP, "tone": ""}
TEXT = st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from("<>&\"' "), min_size=1)


class Reader(HTMLParser):
    """Collects each row's class, and each cell's attributes and text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tones: list[str | None] = []
        self.cells: list[list[dict[str, Any]]] = []
        self.tags: set[str] = set()
        self.is_in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.tones.append(dict(attrs).get("class"))
            self.cells.append([])
        elif tag == "td":
            self.is_in_cell = True
            self.cells[-1].append({**dict(attrs), "text": ""})
        elif tag == "a":
            self.cells[-1][-1]["href"] = dict(attrs)["href"]

    def handle_endtag(self, tag: str) -> None:
        self.is_in_cell &= tag != "td"

    def handle_data(self, data: str) -> None:
        if self.is_in_cell:
            self.cells[-1][-1]["text"] += data


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "config": TEXT,
                "words": TEXT | st.none(),
                "state": TEXT,
                "rate": st.floats(-1e6, 1e6) | st.none(),
                "way": TEXT | st.none(),
                "tone": st.sampled_from(["best", ""]),
            }
        ),
        max_size=5,
    ),
    st.integers(1, 6),
)
def test_a_parser_reads_what_the_frame_has(rows: list[dict[str, Any]], shown: int) -> None:
    """Each shown cell has its text, number and address, whatever stands in them, and nothing becomes an element."""
    rows = [HOSTILE, *rows]
    kinds = {name: pl.Float64 if name == "rate" else pl.String for name in ("config", "words", "state", "rate")}
    frame = pl.DataFrame(rows, schema={**kinds, "way": pl.String, "tone": pl.String})
    block = table(frame, COLUMNS, name="t", title="T", tone="tone", hrefs={"words": "way"}, shown=shown).payload()
    reader = Reader()
    reader.feed(f"<table>{table_rows(block, '../')}</table>")

    expected = rows[:shown]
    assert {"table", "tr", "td", "a", "code"} >= reader.tags
    assert ["tone-best" if row["tone"] else None for row in expected] == reader.tones
    for row, cells in zip(expected, reader.cells, strict=True):
        texts = [cell["text"] for cell in cells]
        assert [row["config"], row["words"] or "–", row["state"]] == texts[:3]
        assert cells[1].get("href") == (f"../{row['way']}" if row["way"] else None)
        assert ["data-off" in cell for cell in cells] == [False, False, True, False]
        if row["rate"] is None:
            assert (texts[3], "data-value" in cells[3]) == ("–", False)
        else:
            assert abs(float(cells[3]["data-value"]) - row["rate"]) <= 1e-6 * abs(row["rate"])
