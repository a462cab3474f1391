"""Pages in a real browser, from file://, with the network off: whole, accessible, and fit for desk, phone and paper."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from chromium import PHONE, Window
from tokenpeak import paths
from tokenpeak.report import SweepView
from tokenpeak.report.blocks.display import packed_rows
from tokenpeak.report.ranking import ranking_blocks
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.site.pages import SWEEP_PAGES

pytestmark = pytest.mark.integration

RIG, SIM, EVIL = "20261119-220000-quick-rig", "20261120-220000-quick-sim", "20261121-220000-hostile-sim"
PAGES = [
    "index.html",
    "compare.html",
    "methodology.html",
    f"{SIM}/data/index.html",
    *(f"{RIG if page.name == 'hardware' else SIM}/{page.name}.html" for page in SWEEP_PAGES),
    f"{SIM}/trials/*.html",
]
STILL = ("index.html", f"{SIM}/claims.html")
"""Pages on which no figure answers the pointer."""
UNPACK = re.compile(r"function unpacked\(.*?\n  \}\n", re.DOTALL)
LONG_LEGENDS = ("index", "load", "requests", "energy")
"""Pages with figures whose legends have the names of configs."""


def found(site: Path, name: str) -> Path:
    """The page, or the first of those of a pattern."""
    return next(iter(sorted(site.glob(name))))


@pytest.mark.parametrize("name", [*PAGES, f"{EVIL}/index.html", f"{EVIL}/ranking.html", f"{EVIL}/load.html"])
def test_page_stands_alone(window: Window, site: Path, name: str) -> None:
    """Moved from where it was built, offline and a year on, it opens, draws, and asks for its own files only.

    No console error, no violation of the policy, nothing run from a name, nothing wider than the window; Vega, nine
    tenths of a megabyte, is not read where nothing answers the pointer.
    """
    page = window.open(found(site, name))

    assert [] == window.complaints
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("new Date().getFullYear()") > datetime.now(UTC).year
    assert [] == [url for url in window.asked if not url.startswith((site.as_uri(), "data:", "blob:", "about:"))]
    assert not (name in STILL and any(url.endswith("vega.js") for url in window.asked))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(browser: Browser, site: Path, scheme: str) -> None:
    """Axe finds no violation on any page, in either colour scheme."""
    context = browser.new_context(offline=True, color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
    window = Window(context)
    wrong = []
    for name in PAGES:
        page = window.open(found(site, name))
        violations = Axe().run(page).response["violations"]
        wrong += [f"{name}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in violations]
    context.close()

    assert [] == wrong


def test_pages_are_whole_without_scripts(browser: Browser, site: Path, h100: Path) -> None:
    """With scripts off, figures are pictures, tables are tables and every form of the command can be read."""
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    drawn, commands = [], 0
    for name in ("index", "ranking", "load", "requests", "interactions", "energy", "trials"):
        page.goto((site / SIM / f"{name}.html").as_uri())
        commands += page.locator(".snippet pre:visible").count()
        heatmaps = page.locator("figure.figure:visible").count()
        drawn.append((name, heatmaps, page.locator("figure.figure:visible .chart > svg:visible").count()))
    page.goto((found(h100, "*h100*") / "index.html").as_uri())
    commands += page.locator(".snippet pre:visible").count()
    context.close()

    assert [(name, heatmaps, heatmaps) for name, heatmaps, _ in drawn] == drawn
    assert 7 == commands


def test_pages_print(window: Window, h100: Path) -> None:
    """Overview, ranking, load and energy of the H100 are eight pages of paper at most, without controls."""
    (sweep,) = h100.glob("*h100*")
    leaves = 0
    for name in ("index", "ranking", "load", "energy"):
        page = window.open(sweep / f"{name}.html")
        page.emulate_media(media="print")
        assert not page.locator(".tools:visible").count()
        assert page.locator("figure .chart svg").first.is_visible()
        leaves += len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
        page.emulate_media(media="screen")

    assert 4 <= leaves <= 8


@pytest.mark.parametrize("name", ["index", "ranking", "interactions", "load", "requests", "energy", "trials"])
def test_figures_fit_a_phone(window: Window, site: Path, h100: Path, name: str) -> None:
    """No figure has to be moved sideways to be seen whole; a legend of long names takes nothing of a plot's width."""
    sweep = found(h100, "*h100*") if name in LONG_LEGENDS else site / RIG
    page = window.page
    page.set_viewport_size(PHONE)
    page.goto((sweep / f"{name}.html").as_uri())
    widths = []
    for figure in page.locator("figure.figure").all():
        figure.evaluate("figure => figure.scrollIntoView()")
        chart = figure.locator(".chart").element_handle()
        page.wait_for_function("chart => chart.scrollWidth <= chart.clientWidth", arg=chart)
        if name in LONG_LEGENDS and figure.get_attribute("data-scope") is not None:
            figure.locator(".embed:not([hidden]) svg").first.wait_for()
            plots = figure.locator(
                ".embed svg .mark-group.role-scope > g > path.background, "
                ".embed svg .mark-group.role-frame > g > path.background"
            )
            # An entry of a legend is such a group too.
            drawn = plots.evaluate_all(
                "plots => plots.filter(plot => !plot.closest('.role-legend'))"
                ".map(plot => plot.getBoundingClientRect().width)"
            )
            widths.append(min(width for width in drawn if width > 0))

    assert bool(widths) == (name in LONG_LEGENDS)
    assert min(widths, default=200) >= 200, widths


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_word_of_a_picture_is_cut_off(window: Window, sim: SweepView, scheme: str) -> None:
    """Laid out by a browser's own fonts, each word of a figure lies within its picture, dark on light."""
    shown = ranking_blocks.ranking_figure(sim, rank(sim, sim.hardware[0]))._repr_mimebundle_()
    page = window.page
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_content(f"<body>{shown['image/svg+xml']}")
    words, outside = page.evaluate(
        """() => {
        const edge = document.querySelector("svg").getBoundingClientRect();
        const words = [...document.querySelectorAll("svg text")].filter(text => text.textContent.trim());
        return [words.length, words.filter(text => {
            const box = text.getBoundingClientRect();
            return box.left < edge.left || box.right > edge.right;
        }).map(text => text.textContent)];
    }"""
    )
    paper = page.locator("svg rect").first.evaluate("rect => getComputedStyle(rect).fill")

    assert page.locator("svg").bounding_box()["width"] > 400  # type: ignore[index]
    assert words > sim.trials["label"].n_unique()
    assert [] == outside
    assert "rgb(255, 255, 255)" == paper


def test_the_page_reads_the_rows_that_were_packed(window: Window) -> None:
    """What the script makes of packed rows is the rows, with numbers, booleans and nulls as they were."""
    rows = [
        {"series": f"c {n // 4}", "x": [4, 8.0, 16][n % 3], "holds": [True, 1, None][n % 3], "value": n + 0.25, "n": 2}
        for n in range(40)
    ]
    packed = packed_rows(rows)
    unpack = UNPACK.search((paths.STATIC / "figures.js").read_text())
    assert isinstance(packed, dict)
    assert unpack is not None, "figures.js unpacks data sets"
    back = window.page.evaluate(f"packed => {{ {unpack[0]} return JSON.stringify(unpacked(packed)); }}", packed)

    assert json.loads(json.dumps(rows)) == json.loads(back)
    assert len(json.dumps(packed)) < len(json.dumps(rows)) / 2
