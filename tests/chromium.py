"""Headless Chromium, and windows in it that tests use one after another: a new window costs more than a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 800}
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that runs; the tests are skipped where none is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    starting = sync_playwright()
    try:
        playwright = starting.start()
    except (Error, OSError) as error:
        pytest.skip(f"Playwright's driver does not start: {error}")
    try:
        running = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--disable-quic", *QUIET]
        )
        yield running
        running.close()
    finally:
        playwright.stop()


class Window:
    """An offline window, what its pages complained about and what they asked for."""

    def __init__(self, context: BrowserContext) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page = self.page
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def cleared(self) -> "Window":
        """The window as new."""
        self.page.set_viewport_size(DESK)
        self.page.emulate_media(media="null", color_scheme="null")
        self.page.goto("about:blank")
        self.complaints.clear()
        self.asked.clear()
        return self

    def open(self, path: Path, fragment: str = "") -> Page:
        """The page at `path`, scrolled once to its end so that every figure wakes."""
        self.page.goto("about:blank")
        self.page.goto(path.as_uri() + fragment)
        self.page.evaluate("for (const f of document.querySelectorAll('figure')) f.scrollIntoView()")
        if self.page.locator("figure[data-scope]:visible").count():
            self.page.locator(".embed:not([hidden]) svg").first.wait_for(state="attached")
        return self.page

    def open_again(self) -> Page:
        """The address that the page has now, as somebody opens it who was sent it."""
        address = self.page.url
        self.page.goto("about:blank")
        self.page.goto(address)
        return self.page
