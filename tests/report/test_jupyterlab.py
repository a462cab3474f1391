"""Each notebook in a real JupyterLab, in Chromium without a network."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tokenpeak import paths
from tokenpeak.report.blocks.display import BLOCK_MIME
from tokenpeak.report.site.notebook_runner import execute
from tokenpeak.report.site.pages import SWEEP_PAGES

pytestmark = pytest.mark.e2e

ARCHIVE = paths.ROOT / "tests" / "report" / "golden" / "archive"
JUPYTER = Path(sys.executable).with_name("jupyter-lab")
PAGES = ["start", *(page.notebook.stem for page in SWEEP_PAGES if page.notebook)]
QUESTIONS = sorted(f"questions/{path.stem}" for path in (paths.NOTEBOOKS / "questions").glob("*.ipynb"))
START_S, RUN_MS, DRAWN_MS = 240, 600_000, 5_000
WINDOW, TALL = {"width": 1300, "height": 1000}, {"width": 1300, "height": 6000}
SETTINGS = {
    # Every cell is in the page, not only those near the window.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}
READY = """codes => document.querySelectorAll('.jp-Notebook .jp-CodeCell').length === codes
  && document.querySelector('#jp-main-statusbar').textContent.includes('| Idle')"""
DONE = """codes => {
  if (document.querySelector('.jp-Notebook [data-mime-type="application/vnd.jupyter.error"]')) return true;
  const prompts = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputArea-prompt')];
  return prompts.length === codes && prompts.every(prompt => /^\\[\\d+\\]:$/.test(prompt.textContent.trim()));
}"""
SEEN = """() => {
  const charts = [...document.querySelectorAll('.jp-RenderedVegaCommon5 :is(canvas, svg.marks)')];
  return {
    charts: charts.filter(chart => chart.getBoundingClientRect().width > 100).length,
    rows: document.querySelectorAll('table:has(caption) tbody tr').length,
    frames: document.querySelectorAll('table.dataframe').length,
    errors: [...document.querySelectorAll('[data-mime-type="application/vnd.jupyter.error"], '
      + '[data-mime-type="application/vnd.jupyter.stderr"]')].map(each => each.textContent.slice(0, 300)),
  };
}"""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A running JupyterLab: its address with the token, its root folder and the folder of its settings."""

    address: str
    token: str
    root: Path
    settings: Path

    def set(self, extension: str, values: dict[str, Any]) -> None:
        """Write an extension's settings, which the next page that is loaded has."""
        path = self.settings / "@jupyterlab" / f"{extension}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    def open(self, page: Page, name: str) -> int:
        """Open a notebook; its number of code cells, all of which are there, with a kernel that is ready.

        JupyterLab drops a command to run all cells that comes before that.
        """
        cells = json.loads((self.root / "notebooks" / f"{name}.ipynb").read_text())["cells"]
        codes = sum(cell["cell_type"] == "code" for cell in cells)
        page.goto(f"{self.address}/lab/tree/notebooks/{name}.ipynb?token={self.token}&reset", timeout=RUN_MS)
        page.wait_for_function(READY, arg=codes, timeout=RUN_MS)
        return codes


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab over copies of the notebooks, with the golden archive where they look for results."""
    if not JUPYTER.is_file():
        pytest.skip("no JupyterLab is installed; `make notebook` adds it once")
    root, own = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("jupyter")
    shutil.copytree(paths.NOTEBOOKS, root / "notebooks", ignore=shutil.ignore_patterns(".*", "*.lock"))
    shutil.copytree(ARCHIVE, root / "results" / ARCHIVE.name)
    shutil.copytree(paths.ROOT / "analysis" / "landscapes", root / "analysis" / "landscapes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = Lab(address=f"http://127.0.0.1:{port}", token=secrets.token_hex(16), root=root, settings=own / "settings")
    for extension, values in SETTINGS.items():
        found.set(extension, values)
    folders = {f"JUPYTER_{name}_DIR": str(own / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
    command = [JUPYTER, "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={found.token}", f"--ServerApp.root_dir={root}", "--allow-root"]
    command += [f"--LabApp.user_settings_dir={found.settings}", f"--LabApp.workspaces_dir={own / 'workspaces'}"]
    with (
        (own / "log").open("w") as log,
        subprocess.Popen(
            command,
            env={**os.environ, **folders, **nowhere, "IPYTHONDIR": str(own / "ipython")},
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            wait_until_up(found, server, own / "log")
            yield found
        finally:
            server.terminate()


def wait_until_up(lab: Lab, server: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the server answers."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{lab.address}/api?token={lab.token}", timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"JupyterLab did not answer within {START_S} s: {log.read_text()[-2000:]}")


def asked(context: BrowserContext, own: str) -> list[str]:
    """The addresses outside of `own` that the context asks for from now on; none is answered."""
    found: list[str] = []

    def answer(route: Any) -> None:
        if route.request.url.startswith((own, "data:", "blob:")):
            route.continue_()
        else:
            found.append(route.request.url)
            route.abort()

    context.route("**/*", answer)
    return found


def expected(notebook: Path) -> dict[str, int]:
    """How many figures, rows of tables and frames the notebook displays where it lies, by what it gives the site."""
    executed = execute(notebook, notebook.with_name(f"executed-{notebook.name}"), {})
    found = [output.data for cell in executed.cells for output in cell.get("outputs", []) if "data" in output]
    blocks = [data[BLOCK_MIME] for data in found if BLOCK_MIME in data]
    # Where a sweep has nothing of a page's subject, the notebook says so in a sentence.
    assert blocks
    return {
        "charts": sum(block["kind"] == "figure" for block in blocks),
        "rows": sum(min(len(block["rows"]), 100) for block in blocks if block["kind"] == "table"),
        "frames": sum('class="dataframe"' in data.get("text/html", "") for data in found),
    }


@pytest.mark.parametrize("name", [*PAGES, *QUESTIONS])
def test_a_notebook_runs_and_shows_everything(browser: Browser, lab: Lab, name: str) -> None:
    """Run All ends without an error; each figure is an interactive chart and each table has its rows."""
    path = lab.root / "notebooks" / f"{name}.ipynb"
    context = browser.new_context(viewport=WINDOW)  # type: ignore[arg-type]
    outside = asked(context, lab.address)
    page = context.new_page()
    codes = lab.open(page, name)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(DONE, arg=codes, timeout=RUN_MS)
    page.set_viewport_size(TALL)  # type: ignore[arg-type]
    wanted = expected(path)
    # A chart is drawn after its cell has ended.
    page.wait_for_timeout(DRAWN_MS)
    shown = page.evaluate(SEEN)
    if folder := os.environ.get("TOKENPEAK_SHOTS"):
        page.screenshot(path=f"{folder}/{name.replace('/', '-')}.png")
    context.close()

    assert [] == shown["errors"] == outside
    assert wanted == {key: shown[key] for key in wanted}
    assert wanted["frames"] > 0
