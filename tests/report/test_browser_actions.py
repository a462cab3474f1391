"""What a reader does on a page in a real browser: sorting, picking, zooming, factors, comparing, downloads."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from chromium import PHONE, Window

pytestmark = pytest.mark.integration

RIG, SIM = "20261119-220000-quick-rig", "20261120-220000-quick-sim"


def test_table_sorts_filters_and_keeps_it_in_the_address(window: Window, site: Path) -> None:
    """Sorting, filtering and choosing columns change the table, and the address brings it all back."""
    page = window.open(site / RIG / "trials.html")
    table = page.locator("#table-trials")
    table.get_by_role("button", name="Duration").click()
    table.get_by_role("searchbox").fill("A100 8")
    table.get_by_text("Columns", exact=True).click()
    table.get_by_label("KV cache tokens").check()
    shown = table.locator("tbody tr:visible").all_inner_texts()
    window.open_again()

    assert 0 < len(shown) < table.locator("tbody tr").count()
    assert "descending" == table.locator("th[data-key=duration_s]").get_attribute("aria-sort")
    assert shown == table.locator("tbody tr:visible").all_inner_texts()
    assert table.locator("th[data-key=kv_cache_tokens]").is_visible()


def test_factors_recompute_the_table(window: Window, site: Path) -> None:
    """Doubling PUE doubles the energy at the meter; a month and a year follow from the volume; a price has a cost."""
    page = window.open(site / RIG / "energy.html")
    head = "th[data-key=energy_kwh_per_1m_output_tok]"
    column = page.locator(head).first.evaluate("head => head.cellIndex")
    cell = page.locator("section.table:not(.compact)[data-name^='energy-'] tbody tr").first.locator("td").nth(column)
    before = float(cell.get_attribute("data-value"))
    page.get_by_role("textbox", name="PUE", exact=True).fill("2.6")
    page.get_by_role("textbox", name="Volume", exact=True).fill("100")
    page.get_by_role("textbox", name="Price of a node", exact=True).fill("3")
    amounts = page.locator("[data-name^='amounts-'] table").first.evaluate(
        "table => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.dataset.value))"
    )

    assert pytest.approx(2 * before) == float(cell.get_attribute("data-value"))
    for _, _, million, month, year, _ in amounts:
        assert [100 * float(million), 1200 * float(million)] == pytest.approx([float(month), float(year)])
    assert "factor.pue=2.6" in page.evaluate("location.hash")


def test_a_phone_shows_the_load_of_a_run(window: Window, site: Path) -> None:
    """Beside the config stands the load, within the window, and the menu of columns is whole."""
    page = window.open(site / RIG / "index.html")
    page.set_viewport_size(PHONE)
    page = window.open(site / RIG / "load.html")
    table = page.locator("section.table[data-name^='runs']").first
    head = table.locator("th[data-key=level_label]")
    menu = table.locator(".columns-menu")
    menu.locator("summary").click()
    boxes = [head.bounding_box(), menu.locator("> div").bounding_box()]

    assert 1 == head.evaluate("head => head.cellIndex")
    for box in boxes:
        assert box is not None and 0 <= box["x"] and box["x"] + box["width"] <= PHONE["width"]


def test_figure_downloads_carry_the_facts(window: Window, site: Path, tmp_path: Path) -> None:
    """A downloaded SVG is a picture of its own: title, mark, facts, and no variable left unresolved."""
    page = window.open(site / SIM / "ranking.html")
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
    assert [] == window.complaints


def test_comparison_refuses_what_is_not_comparable(window: Window, site: Path) -> None:
    """A simulated and a real result stand side by side and are not ranked; two of one sweep are."""
    page = window.open(site / "compare.html")
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
    basis = r"\((?:by the ranking|their 95% .*)\)"
    by = re.search(rf": ([+−])([\d.]+)% against the first, (better|worse|not distinguishable) {basis}", together)
    assert by is not None

    assert [False, True] == marks
    assert apart.startswith("Not ranked against ")
    assert "simulated" in apart
    assert cell.endswith(f"{by[1]}{by[2]}%")
    assert [] == window.complaints


def series(page: Page, figure: str) -> list[str]:
    """The entries of a figure's legend."""
    return page.locator(f"#{figure} .embed .role-legend-label text").all_text_contents()


def test_configs_are_picked_from_table_and_legend(window: Window, site: Path) -> None:
    """A row's button, a click on the row and one on the legend show and hide a config in every figure of the page."""
    page = window.open(site / SIM / "load.html")
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
    window.open_again()
    page.locator(f"#{figure} .embed:not([hidden]) svg").wait_for(state="attached")

    assert label not in " ".join(before)
    assert label in " ".join(added)
    assert added[1:] == removed
    assert removed == series(page, str(figure))
    assert len(removed) == page.locator("section.table[data-scope]").first.locator("tr.picked").count()
    assert [] == window.complaints


def test_a_brush_zooms_and_the_address_keeps_it(window: Window, site: Path) -> None:
    """Dragging over a plot keeps the loads under the band; the entries do so by keyboard; All brings back the rest."""
    page = window.open(site / SIM / "load.html")
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
    window.open_again()
    page.locator("figure[data-scope] .embed:not([hidden]) svg").first.wait_for(state="attached")
    shown_there = ticks.all_text_contents()
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


def test_cards_are_filtered_by_hardware_and_model(window: Window, site: Path) -> None:
    """Choosing a kind of hardware leaves the cards and rows of its sweeps, and the address brings it back."""
    page = window.open(site / "index.html")
    page.locator("#filter-hardware").select_option("1x NVIDIA L4")
    shown = page.locator(".card:visible").count()
    rows = page.locator("#table-sweeps tbody tr:visible").count()
    window.open_again()

    assert 0 < shown < page.locator(".card").count()
    assert shown == rows == page.locator(".card:visible").count()
