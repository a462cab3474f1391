"""Pages of the documentation: whole, linked, readable from a file with the network off, and accessible."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from tests.front_door.documented import DOCS, SH_RULES, YAML_RULES, doc_blocks, doc_pages

from chromium import DESK, PHONE, Window, chromium
from tokenpeak.docs.figures import FIGURES
from tokenpeak.docs.writer import FOLDER, groups
from tokenpeak.report.site.pages import SWEEP_PAGES
from tokenpeak.report.site.publish import broken_links

PAGES = doc_pages()
SHOWN = ("index", "tutorial/own-nodes", "how-to/energy-factors", "reference/sweep", "explanation/intervals")
"""Pages of each kind, for what takes a browser seconds."""
LONGEST_SENTENCE = 25
TASKS = [page for page in PAGES if page.startswith(("tutorial", "how-to")) or page == "index"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; tests that need it are skipped where none is installed."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def one_window(browser: Browser) -> Iterator[Window]:
    """An offline window."""
    context = browser.new_context(offline=True)
    yield Window(context)
    context.close()


@pytest.fixture
def window(one_window: Window) -> Window:
    """The window of all tests of this module, as new."""
    return one_window.cleared()


def words_of(page: str) -> str:
    """A page's sentences and list items, without code, tables, headings and marks."""
    text = re.sub(r"^```.*?^```$", "", (DOCS / f"{page}.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "#"))]
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"^\s*- ", "\n\n", "\n".join(lines), flags=re.MULTILINE))


def test_contents_name_every_page() -> None:
    """No page is left out of the menu."""
    named = [page.name for group in groups() for page in group.pages]

    assert len(set(named)) == len(named)
    assert sorted([*named, "index"]) == PAGES


@pytest.mark.parametrize("page", TASKS)
def test_sentences_of_tasks_are_short(page: str) -> None:
    """Tutorials and guides have at most 25 words a sentence; a list behind a colon is not counted."""
    sentences = re.split(r"(?<=[.?!])\s+|\n\n|(?<=:)\s", words_of(page))
    long = [each for each in sentences if len(each.split()) > LONGEST_SENTENCE]

    assert [] == long


@pytest.mark.parametrize("page", PAGES)
def test_each_block_has_a_rule(page: str) -> None:
    """What is fenced says what becomes of it."""
    odd = [
        block
        for block in doc_blocks(page)
        if block.rule not in {"sh": SH_RULES, "yaml": YAML_RULES}.get(block.language, ("",))
        or block.language not in ("sh", "yaml", "text", "python", "sql")
    ]

    assert [] == odd


def test_every_link_leads_somewhere(docs: Path) -> None:
    """Pages, headings and rows that are linked to are there, and nothing is loaded from elsewhere."""
    assert [] == broken_links(docs.parent)


def test_every_figure_is_shown_once(docs: Path) -> None:
    """Each explanation has a figure, drawn from a shipped archive, with a caption and its data as a table."""
    shown = [name for page in docs.rglob("*.html") for name in re.findall(r'id="figure-([\w-]+)"', page.read_text())]

    assert sorted(FIGURES) == sorted(shown)
    for page in docs.glob("explanation/*.html"):
        figures = re.findall(r'<figure class="drawn".*?</figure>', page.read_text(), re.DOTALL)
        for figure in figures:
            assert "<svg" in figure
            assert re.search(r"<figcaption><strong>[^<]+</strong> \S", figure)
            assert 3 <= figure.count("<tr>")


@pytest.mark.integration
@pytest.mark.parametrize("page", SHOWN)
def test_page_opens_from_a_file_without_complaint(window: Window, docs: Path, page: str) -> None:
    """No console error, no violation of the policy, and nothing wider than a window or a telephone."""
    opened = window.open(docs / f"{page}.html")
    for size in (DESK, PHONE):
        opened.set_viewport_size(size)

        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), size
    assert [] == window.complaints


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(browser: Browser, docs: Path, scheme: str) -> None:
    """Axe finds no violation, in either colour scheme."""
    context = browser.new_context(offline=True, color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
    opened = context.new_page()
    found = []
    for page in SHOWN:
        opened.goto((docs / f"{page}.html").as_uri())
        violations = Axe().run(opened).response["violations"]
        found += [f"{page}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in violations]
    context.close()

    assert [] == found


@pytest.mark.integration
@pytest.mark.parametrize(
    ("typed", "page"),
    [
        ("max_rate_under", "reference/sweep.html#"),
        ("haproxy", "how-to/containers-behind-haproxy.html"),
        ("ttft_s", "reference/metrics.html#"),
        ("--max-rate-under", "reference/commands.html#"),
        ("v_ranking", "reference/sql.html#"),
        ("docker compose", "how-to/one-box.html"),
        ("abort", "how-to/three-am.html#"),
        ("permission", "how-to/without-root.html"),
        ("offline", "how-to/controller-image.html#"),
        ("firewall", "how-to/reach-nodes.html#"),
        ("localhost", "how-to/first-inventory.html"),
        ("grafana", "how-to/notify.html#"),
    ],
)
def test_search_finds_by_name(window: Window, docs: Path, typed: str, page: str) -> None:
    """What is typed is found first where it is defined, and the result leads there."""
    opened = window.open(docs / "index.html")
    opened.get_by_role("searchbox", name="Search the documentation").fill(typed)
    first = opened.locator(".docs-search ol a").first
    address = str(first.get_attribute("href"))
    first.click()

    assert page in address
    assert opened.url.endswith(address.removeprefix("../docs/"))


def test_tutorial_names_the_pages_as_the_site_does() -> None:
    """Each page of a sweep, in the order of the menu."""
    text = (FOLDER / "tutorial" / "first-sweep.md").read_text()
    rows = text.partition("| page | answers |")[2].partition("\n\n")[0].splitlines()

    assert [page.menu for page in SWEEP_PAGES] == [row.split("|")[1].strip() for row in rows[2:]]
