"""A site made from archives that hold a payload wherever the records permit one, in a real browser."""

from pathlib import Path

import pytest
from payload import HOST, JOINING, payload_archive
from playwright.sync_api import Browser
from tests.report.conftest import CALIBRATION

from tokenpeak.loadgen.calibration.network_path import calibration_record
from tokenpeak.report.site.build import build_site

pytestmark = pytest.mark.integration

ATTACKS = """() => ({
  foreign: [...document.querySelectorAll("[href], [src], [action], [data], [srcset], [formaction], [ping]")]
    .flatMap(each => ["href", "src", "action", "data", "srcset", "formaction", "ping"].map(n => each.getAttribute(n)))
    .filter(value => value !== null)
    .filter(value => !["file:", "data:", "blob:"].includes(new URL(value, location.href).protocol)
                     || value.includes("evil.example")),
  made: document.querySelectorAll("img[src=x], svg[onload], [onerror]").length,
  scripts: [...document.scripts].filter(each => !each.src && /^\\s*alert/.test(each.text)).length,
  computed: document.title.includes("49") || document.body.innerText.includes("onload=alert(1)>49"),
})"""
"""What the page holds that leads out of it, or that a payload made."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of both archives, with its live page."""
    folder = tmp_path_factory.mktemp("payload")
    calibration = calibration_record([CALIBRATION])
    for letter, spare in (("a", frozenset[str]()), ("b", JOINING)):
        payload_archive(folder / "in", letter, calibration=calibration, spare=spare)
    build_site([folder / "in"], folder / "site", live=True)
    return folder / "site"


def test_a_payload_everywhere_does_nothing(browser: Browser, site: Path) -> None:
    """No page opens a dialog, asks for anything beyond the site's files, links elsewhere or breaks its policy."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    found: list[str] = []
    page.on("dialog", lambda dialog: (found.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: found.append(f"error {error}"))
    page.on("console", lambda words: found.append(f"console {words.text}") if words.type == "error" else None)
    context.on("request", lambda request: found.append(request.url) if not own(request.url) else None)
    pages = sorted(site.rglob("*.html"))
    for path in pages:
        page.goto(path.as_uri())
        page.evaluate("for (const f of document.querySelectorAll('figure')) f.scrollIntoView()")
        if page.locator("figure[data-scope]:visible").count():
            page.locator(".embed:not([hidden]) svg").first.wait_for(state="attached")
        attacks = page.evaluate(ATTACKS)
        found += [f"{name} {what}" for name, what in attacks.items() if what]
        found = [each if each.startswith(path.name) else f"{path.name}: {each}" for each in found]
    page.goto((site / "compare.html").as_uri())
    add = page.get_by_role("button", name="Add")
    for sweep in range(page.locator("#add-sweep option").count()):
        page.select_option("#add-sweep", index=sweep)
        page.locator("#add-config option").first.wait_for(state="attached")
        page.select_option("#add-config", index=page.locator("#add-config option").count() - 1)
        if add.is_enabled():
            add.click()
        found += [f"compare {sweep} {what}" for what in page.evaluate(ATTACKS).values() if what]
    page.locator("#compare-result table").first.wait_for()
    context.close()

    assert [] == found
    assert len(pages) >= 28


def own(url: str) -> bool:
    """Whether a browser finds this without any network."""
    return url.startswith(("file://", "data:", "blob:"))


def test_the_payload_reaches_the_pages(site: Path) -> None:
    """What is shown holds the payload as text, so that the pages above had something to withstand."""
    shown = {path.name for path in site.rglob("*.html") if HOST in path.read_text()}

    assert {"index.html", "ranking.html", "interactions.html", "claims.html", "trials.html", "compare.html"} <= shown
