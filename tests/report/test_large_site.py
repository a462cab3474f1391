"""What large sweeps cost: seconds and memory of the build, size of pages, and when they answer in a browser.

`make e2e E2E=tests/report/test_large_site.py` on a quiet machine prints the figures; the limits are those of two cores.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from archive_factory import MANY_AXES, make_archive
from tokenpeak.report.site.pages import SWEEP_PAGES

FORTY: dict[str, list[object]] = MANY_AXES | {
    "max_num_batched_tokens": [2048, 4096],
    "gpu_memory_utilization": [0.8, 0.9],
}
TOKENPEAK = Path(sys.executable).with_name("tokenpeak")
MEMORY_BYTES = 2 * 10**9
PAGE_BYTES = 2 * 10**6
INTERACTIVE_MS = 1000.0


@pytest.mark.e2e
@pytest.mark.timing("the seconds that a large site takes, and when its pages answer, which a reader waits for")
@pytest.mark.parametrize(
    ("axes", "gpus", "replicates", "requests", "limit_s"),
    [(FORTY, ["NVIDIA L4"], 1, 100, 15.0), (MANY_AXES, ["NVIDIA A100-SXM4-80GB", "NVIDIA L4"], 2, 250, 90.0)],
    ids=["forty configs", "a thousand trials, a million requests"],
)
def test_large_site(
    axes: Mapping[str, Sequence[object]],
    gpus: Sequence[str],
    replicates: int,
    requests: int,
    limit_s: float,
    browser: Browser,
    tmp_path: Path,
) -> None:
    """The site is built in time and in little memory, and each page is small and answers within a second."""
    archive = make_archive(
        tmp_path / "20261120-220000-large-sim", axes=axes, gpus=gpus, replicates=replicates, requests=requests
    )
    site = tmp_path / "site"
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([TOKENPEAK, "report", archive.path, "--output", site], check=True)
    wall_s = time.monotonic() - began
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    memory_bytes = spent.ru_maxrss * 1024
    largest = max(site.rglob("*.html"), key=lambda page: page.stat().st_size)
    pages = {page.name: site / archive.path.name / f"{page.name}.html" for page in SWEEP_PAGES}
    # A page that has nothing to show of this archive is not written.
    ready_ms = {name: _ready_ms(browser, path) for name, path in pages.items() if path.is_file()}
    slowest = max(ready_ms, key=lambda name: ready_ms[name])
    sys.stdout.write(
        f"\n{len(list(site.rglob('trials/*.html')))} trials: {wall_s:.1f} s wall, "
        f"{cpu_s:.1f} s of processor on {os.cpu_count()} cores, {memory_bytes / 1e6:.0f} MB; "
        f"largest page {largest.name} {largest.stat().st_size / 1e6:.2f} MB; "
        f"slowest to answer {slowest} {ready_ms[slowest]:.0f} ms\n"
    )

    assert len(ready_ms) >= 8
    assert limit_s > wall_s
    assert memory_bytes < MEMORY_BYTES
    assert largest.stat().st_size < PAGE_BYTES
    assert ready_ms[slowest] < INTERACTIVE_MS


def _ready_ms(browser: Browser, page: Path) -> float:
    """When the page's scripts have run: tables sort and filter, and figures draw themselves as they come into view."""
    tab = browser.new_page()
    tab.goto(page.as_uri())
    ready: float = tab.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    tab.close()
    return ready
