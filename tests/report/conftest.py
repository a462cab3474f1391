"""A site built once from synthetic archives, and a browser where one is found."""

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from archive_factory import START, make_archive
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.site import build_site

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""A name that would run if it were ever taken for markup."""
LAUNCHED_OFTEN = {"max_num_seqs": [8, 64], "enforce_eager": [True, False]}
FRAGILE = {"max_num_seqs": [16, 64], "max_num_batched_tokens": [2048, 8192], "gpu_memory_utilization": [0.9, 0.95]}


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three archives: a first sweep launched thrice, a later one with failures, and one with a hostile name in it."""
    folder = tmp_path_factory.mktemp("archives")
    make_archive(folder / "20261119-220000-quick-rig", axes=LAUNCHED_OFTEN, replicates=3, simulated=False, seconds=20)
    make_archive(
        folder / "20261120-220000-quick-sim", axes=FRAGILE, started_at=START + timedelta(days=1), seconds=20, seed=1
    )
    hostile = make_archive(
        folder / "20261121-220000-hostile-sim", gpus=["NVIDIA L4"], started_at=START + timedelta(days=2), seconds=5
    )
    for path in [hostile.path / "sweep.json", *hostile.path.glob("trials/*.json")]:
        text = path.read_text().replace('"NVIDIA L4"', json.dumps(HOSTILE)).replace("1x NVIDIA L4", f"1x {HOSTILE}")
        path.write_text(text.replace('"enforce_eager=true', f'"{HOSTILE}'))
    return folder


@pytest.fixture(scope="session")
def site(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of all archives, in a folder that it was moved to after it was built."""
    built = tmp_path_factory.mktemp("site") / "built"
    build_site([archives], built)
    moved = built.with_name("moved")
    shutil.move(built, moved)
    return moved


@pytest.fixture(scope="session")
def rig(archives: Path) -> SweepView:
    """The sweep whose configs were launched thrice."""
    return open_archive(archives / "20261119-220000-quick-rig")


@pytest.fixture(scope="session")
def sim(archives: Path) -> SweepView:
    """The simulated sweep with configs that ran out of memory."""
    return open_archive(archives / "20261120-220000-quick-sim")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; tests that need it are skipped where none is installed."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("no Chromium is installed")
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--disable-quic", *quiet]
        )
        yield running
        running.close()
