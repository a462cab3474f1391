"""What front ends show of what notebooks display."""

import json
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import altair as alt
import polars as pl
import pytest
import vl_convert

from tokenpeak.report.blocks import display
from tokenpeak.report.blocks.block import Column, Facts, Figure, Snippet, Snippets, Tile, Tiles, answer, code, table
from tokenpeak.report.blocks.captioned import enable_charts
from tokenpeak.report.blocks.charts import spec_of

SVG = "{http://www.w3.org/2000/svg}"
BLOCK = "application/vnd.tokenpeak.block.v1+json"
HOSTILE = "</script><img src=x onerror=alert(1)>"


class Seen(HTMLParser):
    """The elements of a piece of HTML, its words, and the addresses of its images."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.images: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs)["src"] or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def bundle_of(block: Any) -> dict[str, Any]:
    """What IPython asks a displayed thing for."""
    found: dict[str, Any] = block._repr_mimebundle_()
    return found


def a_table(rows: int, title: str = "T") -> Any:
    """A table with as many rows, one of its two columns hidden."""
    columns = [Column(key="x", title="X", unit="s", kind="number"), Column(key="y", title="Y", hidden=True)]
    frame = pl.DataFrame({"x": [float(row) for row in range(rows)], "y": ["unseen"] * rows})
    return table(frame, columns, name="t", title=title)


def a_figure(title: str = "F") -> Figure:
    """A figure in two of the theme's colours, on hatching."""
    frame = pl.DataFrame({"x": [1, 2], "y": ["one", HOSTILE]})
    chart = alt.layer(
        alt.Chart(frame).mark_bar(fill="url(#hatch)", stroke="var(--bad)").encode(x="x:Q", y="y:N"),
        alt.Chart(frame).mark_text(color="var(--ink)").encode(x="x:Q", y="y:N", text="y:N"),
    )
    return Figure(name="f", title=title, caption="Two bars.", spec=spec_of(chart), data=a_table(2))


def test_a_chart_without_rows_is_a_sentence() -> None:
    """A question of an archive that holds nothing of it; vega draws such a chart without bounds."""
    chart = alt.Chart(pl.DataFrame(schema={"x": pl.Int64, "y": pl.Float64, "s": pl.String}), title="Waits")
    drawn = chart.mark_line(point=True).encode(x="x:Q", y="y:Q", color="s:N")
    with enable_charts():
        found = drawn._repr_mimebundle_()
    bundle = found[0] if isinstance(found, tuple) else found

    assert [BLOCK, "text/html", "text/plain"] == sorted(bundle)
    assert "Waits: its data have no rows, so nothing is drawn." in bundle["text/html"]
    assert not display.is_empty(spec_of(alt.Chart(alt.sequence(0, 3)).mark_point().encode(x="data:Q")))


def test_a_figure_is_a_chart_or_a_picture() -> None:
    """Vega-Lite that JupyterLab draws, and SVG that needs nothing from outside of it; a few words last."""
    found = bundle_of(a_figure())
    chart, picture = found["application/vnd.vegalite.v5+json"], found["image/svg+xml"]
    drawn = vl_convert.vegalite_to_svg(chart, vl_version="5.8")
    root, lines = ElementTree.fromstring(picture), ElementTree.fromstring(drawn).iter(f"{SVG}text")
    first = next(each for each in root if each.tag != f"{SVG}defs")
    words = [text for each in root.iter(f"{SVG}text") if (text := each.text)]

    assert ["application/vnd.vegalite.v5+json", "image/svg+xml", BLOCK, "text/plain"] == list(found)
    assert "var(" not in picture + drawn
    assert "url(#hatch)" not in drawn
    assert {"F", "Two bars.", "one", HOSTILE} <= {each.text for each in lines}
    assert 'fill="#ffffff"' in drawn
    assert {"content": "encoding"} == chart["config"]["mark"]["tooltip"]
    assert ["moved"] == [each["name"] for each in chart["layer"][0]["params"]]
    assert "var(--bad)" in json.dumps(found[BLOCK]["spec"]), "the site's own specification stays as it is"
    assert 'id="hatch"' in picture
    assert (f"{SVG}rect", "#ffffff") == (first.tag, first.get("fill")), "ink is read on its own paper"
    assert "one" in words
    assert "F. Two bars." == found["text/plain"]


@pytest.mark.parametrize(("rows", "shown"), [(3, 3), (250, 100)])
def test_a_table_is_a_table(rows: int, shown: int) -> None:
    """A table's HTML has a head and its first rows, without hidden columns; its plain text is one line."""
    found = bundle_of(a_table(rows))
    seen = Seen(found["text/html"])

    assert ["text/html", BLOCK, "text/plain"] == list(found)
    assert (shown + 1, shown, 1) == tuple(seen.tags.count(tag) for tag in ("tr", "td", "th"))
    assert "unseen" not in "".join(seen.words)
    assert (f"of {rows} rows" in "".join(seen.words)) == (rows > shown)
    assert f"T: {rows} rows, 2 columns" == found["text/plain"]


@pytest.mark.parametrize(
    "block",
    [
        answer("Run ", code(HOSTILE)),
        a_table(1, HOSTILE),
        Tiles(tiles=(Tile(label=HOSTILE, value="1"),)),
        Facts(pairs=((HOSTILE, "1"),)),
        Snippets(name="s", snippets=(Snippet(title="S", text=HOSTILE),)),
    ],
    ids=lambda block: block.kind,
)
def test_names_are_no_markup(block: Any) -> None:
    """A name that would run if it passed for markup is text in each kind of block."""
    seen = Seen(bundle_of(block)["text/html"])

    assert HOSTILE in "".join(seen.words)
    assert [] == seen.images
