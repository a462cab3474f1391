"""The site in a real browser, from file://, with the network off."""

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report.pages import SWEEP_PAGES
from tokenpeak.report.site import build_site

pytestmark = pytest.mark.timing
RIG, SIM, EVIL = "20261119-220000-quick-rig", "20261120-220000-quick-sim", "20261121-220000-hostile-sim"
PAGES = [
    "index.html",
    "compare.html",
    "methodology.html",
    f"{SIM}/data/index.html",
    *(f"{SIM}/{page.name}.html" for page in SWEEP_PAGES),
]


class Session:
    """A page and what it complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))

    def open(self, path: Path, fragment: str = "") -> Page:
        """The page at `path`, scrolled once to its end so that every figure wakes."""
        self.page.goto(path.as_uri() + fragment)
        self.page.evaluate("for (const f of document.querySelectorAll('figure')) f.scrollIntoView()")
        if self.page.locator("figure[data-scope]:visible").count():
            self.page.locator(".embed:not([hidden]) svg").first.wait_for(state="attached")
        return self.page


@pytest.fixture
def session(browser: Browser) -> Iterator[Session]:
    """A fresh offline window."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}, accept_downloads=True)
    yield Session(context.new_page())
    context.close()


@pytest.mark.parametrize("name", [*PAGES, f"{EVIL}/index.html", f"{EVIL}/ranking.html", f"{EVIL}/load.html"])
def test_page_opens_without_complaint(session: Session, site: Path, name: str) -> None:
    """No console error, no violation of the policy, nothing run from a name, nothing wider than the window."""
    page = session.open(site / name)

    assert [] == session.complaints
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.e2e)])
def test_pages_are_accessible(browser: Browser, site: Path, scheme: str) -> None:
    """Axe finds no violation on any page, in either colour scheme."""
    trial = next((site / SIM / "trials").glob("*.html")).relative_to(site).as_posix()
    context = browser.new_context(offline=True, color_scheme=scheme, bypass_csp=True)
    session = Session(context.new_page())
    found = []
    for name in [*PAGES, trial]:
        page = session.open(site / name)
        violations = Axe().run(page).response["violations"]
        found += [f"{name}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in violations]
    context.close()

    assert [] == found


def test_table_sorts_filters_and_keeps_it_in_the_address(session: Session, site: Path) -> None:
    """Sorting, filtering and choosing columns change the table, and the address brings it all back."""
    page = session.open(site / RIG / "trials.html")
    table = page.locator("#table-trials")
    table.get_by_role("button", name="Duration").click()
    first = table.locator("tbody tr").first.inner_text()
    table.get_by_role("searchbox").fill("A100 8")
    shown = table.locator("tbody tr:visible").count()
    table.get_by_text("Columns", exact=True).click()
    table.get_by_label("KV cache tokens").check()
    fragment = page.evaluate("location.hash")
    other = session.page.context.new_page()
    other.goto((site / RIG / "trials.html").as_uri() + fragment)

    assert "descending" == other.locator("#table-trials th[data-key=duration_s]").get_attribute("aria-sort")
    assert first == other.locator("#table-trials tbody tr").first.inner_text() or shown < 24
    assert shown == other.locator("#table-trials tbody tr:visible").count()
    assert other.locator("#table-trials th[data-key=kv_cache_tokens]").is_visible()


def test_factors_recompute_the_table(session: Session, site: Path) -> None:
    """Doubling PUE doubles the energy at the meter, and a volume shows the months' columns."""
    page = session.open(site / RIG / "energy.html")
    head = "th[data-key=energy_kwh_per_1m_output_tok]"
    column = page.locator(head).first.evaluate("head => head.cellIndex")
    cell = page.locator(".table:not(.compact) tbody tr").first.locator("td").nth(column)
    before = float(cell.get_attribute("data-value"))
    page.get_by_role("textbox", name="PUE", exact=True).fill("2.6")
    page.get_by_role("textbox", name="Volume", exact=True).fill("100")

    assert pytest.approx(2 * before) == float(cell.get_attribute("data-value"))
    assert page.locator("th[data-key=month_kwh]").first.is_visible()
    assert "factor.pue=2.6" in page.evaluate("location.hash")


def test_a_tariff_follows_the_reader(session: Session, tmp_path: Path) -> None:
    """Each span of hours keeps its own factors until the reader gives one for all; the address brings it back."""
    archive = tmp_path / "20261119-220000-tariff"
    make_archive(archive, gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3)
    (tmp_path / "tariff.csv").write_text(
        "hour,price_per_kwh,kg_co2_per_kwh\n"
        + "".join(f"{hour},{-0.05 if hour < 6 else 0.3},{0.2 if hour < 6 else 0.4}\n" for hour in range(24))
    )
    build_site([archive], tmp_path / "site", parameters={"factors": str(tmp_path / "tariff.csv")})
    page = session.open(tmp_path / "site" / archive.name / "energy.html")

    def figures(page: Page, key: str, name: str = "hours-") -> list[float]:
        table = page.locator(f".table:not(.compact)[data-name^={name}]").first
        column = table.locator(f"th[data-key={key}]").evaluate("head => head.cellIndex")
        return [
            float(row.locator("td").nth(column).get_attribute("data-value")) for row in table.locator("tbody tr").all()
        ]

    cost, co2 = "cost_per_1m_output_tok", "co2_kg_per_1m_output_tok"
    before, emitted, mean = figures(page, cost), figures(page, co2), figures(page, cost, "energy-")
    page.get_by_role("textbox", name="PUE", exact=True).fill("2.6")
    node = 2.5 / 3600 / figures(page, "output_tok_per_s")[0] * 1e6
    dearer = [node + 2 * (each - node) for each in before]
    assert dearer == pytest.approx(figures(page, cost))
    assert [2 * each for each in emitted] == pytest.approx(figures(page, co2))
    assert before[0] < node < mean[0] < before[1]
    page.get_by_role("textbox", name="Price of electricity", exact=True).fill("0.3")
    assert [dearer[1]] * 2 == pytest.approx(figures(page, cost))
    other = page.context.new_page()
    other.goto(page.url)
    assert [dearer[1]] * 2 == pytest.approx(figures(other, cost))


def test_a_factors_range_gives_the_range_of_figures(session: Session, site: Path) -> None:
    """Both ends follow the reader's range; a value of the reader's own has none; the address keeps all of it."""
    page = session.open(site / RIG / "energy.html")

    def ends(key: str) -> tuple[float, float]:
        found = []
        for end in ("low", "high"):
            head = page.locator(f"[data-name^=factor-ranges] th[data-key={key}_{end}]").first
            row = page.locator("[data-name^=factor-ranges] tbody tr").first
            found.append(
                float(row.locator("td").nth(head.evaluate("head => head.cellIndex")).get_attribute("data-value"))
            )
        return found[0], found[1]

    low, high = ends("kwh")
    assert pytest.approx(1.56 / 1.1) == high / low
    page.get_by_role("textbox", name="PUE", exact=True).fill("1.2")
    assert pytest.approx(ends("kwh")[0]) == ends("kwh")[1] == pytest.approx(low / 1.1 * 1.2)
    page.get_by_role("textbox", name="PUE, high").fill("2.2")
    assert pytest.approx((low / 1.1 * 1.2, 2 * low)) == ends("kwh")
    assert "factor.pue.high=2.2" in page.evaluate("location.hash")


def test_figure_downloads_carry_the_facts(session: Session, site: Path, tmp_path: Path) -> None:
    """A downloaded SVG is a picture of its own: title, mark, facts, and no variable left unresolved."""
    page = session.open(site / SIM / "ranking.html")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="SVG").first.click()
    waiting.value.save_as(tmp_path / "figure.svg")
    svg = (tmp_path / "figure.svg").read_text()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="PNG").first.click()
    waiting.value.save_as(tmp_path / "figure.png")

    assert "[simulated" in svg
    assert SIM in svg
    assert "var(--" not in svg
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert [] == session.complaints


def test_comparison_refuses_what_is_not_comparable(session: Session, site: Path) -> None:
    """A simulated and a real result stand side by side and are not ranked; two of one sweep are."""
    page = session.open(site / "compare.html")
    options = page.locator("#add-sweep option").all_inner_texts()

    def add(sweep: str, config: int) -> None:
        page.select_option("#add-sweep", index=next(i for i, text in enumerate(options) if sweep in text))
        page.select_option("#add-config", index=config)
        page.get_by_role("button", name="Add").click()

    def empty() -> None:
        while page.locator(".chosen button").count():
            page.locator(".chosen button").first.click()

    empty()
    add(RIG, 0)
    add(SIM, 0)
    marks = ["(simulated)" in text for text in page.locator(".chosen li").all_inner_texts()]
    apart = page.locator("#compare-result .sentence").inner_text()
    empty()
    add(RIG, 0)
    add(RIG, 3)
    together = page.locator("#compare-result .sentence").inner_text()
    cell = page.get_by_role("row", name="Output throughput (tok/s, 95% interval)").locator("td").last.inner_text()
    by = re.search(
        r": ([+−])([\d.]+)% against the first, (better|worse|not distinguishable) \(by the ranking\)", together
    )
    assert by is not None

    assert [False, True] == marks
    assert apart.startswith("Not ranked against ")
    assert "simulated" in apart
    assert cell.endswith(f"{by[1]}{by[2]}%")
    assert [] == session.complaints


def test_six_results_are_compared_and_kept_in_the_address(session: Session, site: Path) -> None:
    """Six configs stand over each other in tables and figures; a seventh is not added; the address brings them back."""
    page = session.open(site / "compare.html")
    page.select_option(
        "#add-sweep",
        index=next(i for i, text in enumerate(page.locator("#add-sweep option").all_inner_texts()) if SIM in text),
    )
    add = page.get_by_role("button", name="Add")
    for index in range(8):
        if add.is_enabled():
            page.select_option("#add-config", index=index)
            add.click()
    page.locator("#compare-result svg").first.wait_for()
    heads = page.locator("#compare-result table").first.locator("th").count()
    points = page.locator("#compare-result figure").first.locator(".mark-symbol path").count()
    other = page.context.new_page()
    other.goto(page.url)
    other.locator("#compare-result svg").first.wait_for()

    assert not add.is_enabled()
    assert 7 == heads
    assert 1 <= points <= 6
    # Each of these was launched once: which measured higher is known, which is better is not.
    said = " ".join(page.locator("#compare-result .sentence").all_inner_texts())
    assert re.search("(higher|lower), not proven|not distinguishable", said)
    assert not re.search("better|worse", said)
    assert page.locator(".chosen li").all_inner_texts() == other.locator(".chosen li").all_inner_texts()
    assert [] == session.complaints


def test_site_stands_alone(browser: Browser, site: Path) -> None:
    """Moved from where it was built, offline and a year on, each page opens, draws, and asks for its own files only."""
    trial = next((site / SIM / "trials").glob("*.html")).relative_to(site).as_posix()
    context = browser.new_context(offline=True)
    context.clock.install(time=datetime.now(UTC) + timedelta(days=366))
    asked: set[str] = set()
    context.on("request", lambda request: asked.add(request.url))
    session = Session(context.new_page())
    for name in [*PAGES, trial]:
        page = session.open(site / name)
        assert page.evaluate("new Date().getFullYear()") > datetime.now(UTC).year
    context.close()

    assert [] == session.complaints
    assert [] == [url for url in asked if not url.startswith((site.as_uri(), "data:", "blob:"))]


def test_figures_and_trials_have_addresses(session: Session, site: Path) -> None:
    """A figure's own link brings it into view in another window; a config leads to its trial, and the trial back."""
    page = session.open(site / SIM / "interactions.html")
    figure = page.locator("figure").last
    address = figure.get_by_role("link", name="Link").get_attribute("href")
    other = session.page.context.new_page()
    other.goto((site / SIM / "interactions.html").as_uri() + str(address))
    # The browser goes there once what stands above has its height, which takes a busy machine a moment.
    other.wait_for_function(
        "address => { const top = document.querySelector(address)?.getBoundingClientRect().top;"
        " return top >= -1 && top < innerHeight; }",
        arg=str(address),
    )
    page.goto((site / SIM / "ranking.html").as_uri())
    page.locator(".table tbody a").first.click()
    trial = page.locator("h1").inner_text()
    page.get_by_role("link", name="All trials").click()

    assert trial.startswith("Trial 0")
    assert "Trials" == page.locator("h1").inner_text()


def test_tables_and_raw_files_download(session: Session, site: Path, tmp_path: Path) -> None:
    """A table's CSV has the rows of the table, and the files of the data page are those that its checksums name."""
    page = session.open(site / SIM / "trials.html")
    rows = page.locator("#table-trials tbody tr").count()
    with page.expect_download() as waiting:
        page.locator("#table-trials").get_by_role("link", name="CSV").click()
    waiting.value.save_as(tmp_path / "trials.csv")
    page.goto((site / SIM / "data" / "index.html").as_uri())
    # From file:// Chromium shows JSON rather than saving it, whatever the link says.
    link = page.get_by_role("link", name="requests.parquet").first
    name = link.inner_text()
    with page.expect_download() as waiting:
        link.click()
    waiting.value.save_as(tmp_path / "requests.parquet")
    digest = hashlib.sha256((tmp_path / "requests.parquet").read_bytes()).hexdigest()

    assert rows == len((tmp_path / "trials.csv").read_text().splitlines()) - 1
    assert f"{digest}  {name}" in (site / SIM / "data" / "SHA256SUMS").read_text()


def test_commands_are_tabs(session: Session, site: Path) -> None:
    """One form of the command is shown at a time, chosen by keyboard too."""
    page = session.open(site / RIG / "index.html")
    page.get_by_role("tab", name="vllm serve").first.focus()
    page.keyboard.press("ArrowRight")

    panels = page.locator(".snippets").first.get_by_role("tabpanel").all()

    assert ["docker run"] == [panel.get_attribute("aria-label") for panel in panels]


def test_pages_are_whole_without_scripts(browser: Browser, site: Path) -> None:
    """With scripts off, figures are pictures, tables are tables and every form of the command can be read."""
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto((site / SIM / "index.html").as_uri())
    commands = page.locator(".snippet pre:visible").count()
    drawn = []
    for name in ("index", "ranking", "load", "requests", "interactions", "energy", "trials"):
        page.goto((site / SIM / f"{name}.html").as_uri())
        figures = page.locator("figure.figure:visible").count()
        drawn.append((name, figures, page.locator("figure.figure:visible .chart > svg:visible").count()))
    context.close()

    assert [(name, figures, figures) for name, figures, _ in drawn] == drawn
    assert 2 * 7 == commands


def series(page: Page, figure: str) -> list[str]:
    """The entries of a figure's legend."""
    return page.locator(f"#{figure} .embed .role-legend-label text").all_text_contents()


def test_configs_are_picked_from_table_and_legend(session: Session, site: Path) -> None:
    """A row's button, a click on the row and one on the legend show and hide a config in every figure of the page."""
    page = session.open(site / SIM / "load.html")
    figure = page.locator("figure[data-scope]").first.get_attribute("id")
    table = page.locator("section.table[data-scope]").first
    before = series(page, str(figure))
    button = table.locator("tbody .pick[aria-pressed=false]").first
    label = str(button.get_attribute("aria-label")).removeprefix("Show ").removesuffix(" in the figures")
    button.focus()
    page.keyboard.press("Enter")
    added = series(page, str(figure))
    page.locator(f"#{figure} .embed .role-legend-label text").first.click()
    removed = series(page, str(figure))
    other = page.context.new_page()
    other.goto(page.url)
    other.locator(f"#{figure} .embed:not([hidden]) svg").wait_for(state="attached")

    assert label not in " ".join(before)
    assert label in " ".join(added)
    assert added[1:] == removed
    assert removed == series(other, str(figure))
    assert len(removed) == other.locator("section.table[data-scope]").first.locator("tr.picked").count()
    assert [] == session.complaints


def test_at_most_six_configs_are_picked(session: Session, site: Path) -> None:
    """The seventh takes the place of the first: there are six colours and shapes."""
    page = session.open(site / SIM / "load.html")
    table = page.locator("section.table[data-scope]").first
    for button in table.locator("tbody .pick").all():
        if button.get_attribute("aria-pressed") == "false":
            button.click()

    assert 6 == table.locator("tr.picked").count()


def test_the_pointer_shows_values_and_launches(session: Session, site: Path) -> None:
    """Over a point the config, its load, its value and how many launches stand behind it."""
    page = session.open(site / SIM / "load.html")
    point = page.locator("figure[data-scope] .embed .concat_0_group .mark-symbol path").last
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    said = page.locator("#vg-tooltip-element.visible").inner_text()

    assert "config" in said
    assert "launches" in said


def test_a_brush_zooms_and_the_address_keeps_it(session: Session, site: Path) -> None:
    """Dragging over a plot keeps the loads under the band; the entries do so by keyboard; All brings back the rest."""
    page = session.open(site / SIM / "load.html")
    figure = page.locator("figure[data-scope]").first
    ticks = figure.locator(".embed .concat_0_group .role-axis-label text")
    whole = ticks.all_text_contents()
    figure.scroll_into_view_if_needed()
    box = figure.locator(".embed .concat_0_group path.background").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 90, steps=5)
    page.mouse.up()
    part = ticks.all_text_contents()
    fragment = page.evaluate("decodeURIComponent(location.hash)")
    other = page.context.new_page()
    other.goto(page.url)
    other.locator("figure[data-scope] .embed:not([hidden]) svg").first.wait_for(state="attached")
    kept = other.locator("figure[data-scope]").first.locator(".embed .concat_0_group .role-axis-label text")
    shown_there = kept.all_text_contents()
    figure.get_by_role("textbox", name="Zoom from").fill("4")
    figure.get_by_role("textbox", name="Zoom to").fill("8")
    figure.get_by_role("textbox", name="Zoom to").press("Enter")
    typed = page.evaluate("decodeURIComponent(location.hash)")
    figure.get_by_role("button", name="All").click()

    assert len(part) < len(whole)
    assert re.search(r"zoom\.[\w-]+=[\d.]+~[\d.]+", fragment)
    assert part == shown_there
    assert "=4~8" in typed
    assert sorted(whole) == sorted(ticks.all_text_contents())
    assert "zoom" not in page.evaluate("location.hash")


def test_cards_are_filtered_by_hardware_and_model(session: Session, site: Path) -> None:
    """Choosing a kind of hardware leaves the cards and rows of its sweeps, and the address brings it back."""
    page = session.open(site / "index.html")
    page.locator("#filter-hardware").select_option("1x NVIDIA L4")
    shown = page.locator(".card:visible").count()
    rows = page.locator("#table-sweeps tbody tr:visible").count()
    other = page.context.new_page()
    other.goto(page.url)

    assert 0 < shown < page.locator(".card").count()
    assert shown == rows == other.locator(".card:visible").count()


def test_a_page_without_interaction_reads_no_runtime(session: Session, site: Path) -> None:
    """Vega, nine tenths of a megabyte, is read where a figure answers the pointer, and nowhere else."""
    asked: list[str] = []
    session.page.on("request", lambda request: asked.append(request.url))
    session.page.goto((site / SIM / "claims.html").as_uri())
    session.page.goto((site / "index.html").as_uri())
    still = [url for url in asked if url.endswith("vega.js")]
    session.open(site / SIM / "load.html")

    assert [] == still
    assert any(url.endswith("vega.js") for url in asked)


@pytest.mark.parametrize("width", [1280, 1440])
def test_nothing_is_cut_off_on_a_desk(browser: Browser, site: Path, width: int) -> None:
    """The columns shown of the energy table fit a window of 1280 pixels, as no figure is wider than its place."""
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900})
    page = Session(context.new_page()).open(site / RIG / "energy.html")
    wide = page.evaluate(
        "[...document.querySelectorAll('.blocks > .table .scroll, .blocks > .figure .chart')]"
        ".filter(each => each.offsetParent && each.scrollWidth > each.clientWidth + 1).map(each => each.ariaLabel)"
    )
    context.close()

    assert [] == wide


@pytest.mark.e2e
def test_pages_print(session: Session, tmp_path: Path) -> None:
    """Overview, ranking, load and energy of the H100 are eight pages of paper at most, without controls."""
    build_site([paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"], tmp_path / "site")
    (sweep,) = (tmp_path / "site").glob("*h100*")
    leaves = 0
    for name in ("index", "ranking", "load", "energy"):
        page = session.open(sweep / f"{name}.html")
        page.emulate_media(media="print")
        assert not page.locator(".tools:visible").count()
        assert page.locator("figure .chart svg").first.is_visible()
        leaves += len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
        page.emulate_media(media="screen")

    assert 4 <= leaves <= 8


@pytest.fixture(scope="session")
def h100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the H100 sweep, whose configs have the longest names in a legend."""
    folder = tmp_path_factory.mktemp("h100")
    build_site([paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"], folder)
    return next(folder.glob("*h100*"))


def test_the_latencies_of_the_ranking_are_seen_on_a_desk(browser: Browser, h100: Path) -> None:
    """Beside the figure, all columns shown of the ranking fit a window of 1280 pixels."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((h100 / "ranking.html").as_uri())
    box = page.locator("section.table[data-name^='ranking-'] .scroll").first
    beyond = box.evaluate("box => box.scrollWidth - box.clientWidth")
    page.close()

    assert beyond <= 1


@pytest.mark.parametrize("name", ["index", "load", "requests", "energy"])
def test_plots_have_room_on_a_phone(browser: Browser, h100: Path, name: str) -> None:
    """A legend of long names takes nothing of a plot's width."""
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto((h100 / f"{name}.html").as_uri())
    widths = []
    for figure in page.locator("figure[data-scope]").all():
        figure.evaluate("figure => figure.scrollIntoView()")
        figure.locator(".embed:not([hidden]) svg").first.wait_for()
        plots = figure.locator(
            ".embed svg .mark-group.role-scope > g > path.background, "
            ".embed svg .mark-group.role-frame > g > path.background"
        )
        found = plots.evaluate_all("plots => plots.map(plot => plot.getBoundingClientRect().width)")
        widths.append(min(width for width in found if width > 0))
    context.close()

    assert widths
    assert min(widths) >= 200, widths


@pytest.mark.parametrize(("width", "is_first"), [(390, True), (1440, False)])
def test_a_phone_has_the_answer_before_the_facts(browser: Browser, h100: Path, width: int, *, is_first: bool) -> None:
    """On a window as narrow as a phone's the overview's answer stands above the facts of the sweep, else below."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto((h100 / "index.html").as_uri())
    places = [
        page.locator(selector).first.evaluate("each => each.getBoundingClientRect().top")
        for selector in (".top", "h1", ".page-index .answer", ".page-head .strip")
    ]
    page.close()

    assert sorted(places[:3]) == places[:3]
    assert is_first == (places[2] < places[3])


@pytest.mark.parametrize("name", ["index", "ranking", "interactions", "load", "requests", "energy", "trials"])
def test_figures_fit_a_phone(browser: Browser, site: Path, name: str) -> None:
    """On a window as narrow as a phone's no figure has to be moved sideways to be seen whole."""
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto((site / SIM / f"{name}.html").as_uri())
    wide = []
    for figure in page.locator("figure.figure").all():
        figure.evaluate("figure => figure.scrollIntoView()")
        figure.locator(".embed:not([hidden]) svg").first.wait_for()
        if figure.locator(".chart").evaluate("chart => chart.scrollWidth > chart.clientWidth"):
            wide.append(figure.get_attribute("id"))
    context.close()

    assert [] == wide


def test_what_a_run_came_to_stands_beside_its_config_on_a_phone(browser: Browser, site: Path) -> None:
    """On a phone verdict, SLO and throughput follow the config, in heads and rows; on a desk the load does."""
    orders = {}
    for width in (390, 1280):
        context = browser.new_context(offline=True, viewport={"width": width, "height": 800})
        page = context.new_page()
        page.goto((site / SIM / "load.html").as_uri())
        grid = page.locator("section.table[data-name^='runs-'] table").first
        keys = grid.locator("thead th").evaluate_all("heads => heads.map(head => head.dataset.key)")
        place = keys.index("verdict")
        verdicts = grid.locator("tbody tr").evaluate_all(f"rows => rows.map(row => row.cells[{place}].className)")
        orders[width] = keys[:4]
        assert all("k-state" in each for each in verdicts)
        context.close()

    assert ["label", "verdict", "slo", "output_tok_per_s"] == orders[390]
    assert ["label", "level_label", "verdict"] == orders[1280][:3]


def test_a_table_that_goes_on_has_a_shadow_on_its_edge(browser: Browser, site: Path) -> None:
    """The covers of the shadows move with the table, cells let them through, and the title gives the rows."""
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto((site / RIG / "load.html").as_uri())
    section = page.locator("section.table[data-name^='runs-']").first
    cell = section.locator("tbody tr:not([class]) td:nth-child(3)").first
    beyond = section.locator(".scroll").evaluate("box => box.scrollWidth - box.clientWidth")
    attachment = section.locator(".scroll").evaluate("box => getComputedStyle(box).backgroundAttachment")
    paper = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
    rows, said = section.locator("tbody tr").count(), section.locator("h3 .unit").inner_text()
    context.close()

    assert beyond > 100
    assert "local, local, scroll, scroll" == attachment
    assert "rgba(0, 0, 0, 0)" == paper
    assert f"{rows} rows" == said


def test_paper_is_light(browser: Browser, site: Path) -> None:
    """A page printed from a dark screen has the light scheme's colours."""
    context = browser.new_context(offline=True, color_scheme="dark")
    page = context.new_page()
    page.goto((site / SIM / "ranking.html").as_uri())
    variable = "getComputedStyle(document.documentElement).getPropertyValue('--band').trim()"
    dark = page.evaluate(variable)
    page.emulate_media(media="print", color_scheme="dark")
    printed = page.evaluate(variable)
    page.emulate_media(media="screen", color_scheme="light")
    light = page.evaluate(variable)
    context.close()

    assert dark != light == printed
