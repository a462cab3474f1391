"""A site built once from synthetic archives, and a browser where one is found."""

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from archive_factory import START, make_archive
from tokenpeak.loadgen.calibration import Calibration, NetworkPath, Point, calibration_record
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.site import build_site

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""A name that would run if it ever passed for markup."""
LAUNCHED_OFTEN = {"max_num_seqs": [8, 64], "enforce_eager": [True, False]}
FRAGILE = {"max_num_seqs": [16, 64], "max_num_batched_tokens": [2048, 8192], "gpu_memory_utilization": [0.9, 0.95]}

CALIBRATION = Calibration(
    measured_at=START,
    host="ada-laptop",
    cpu_cores=2,
    way=NetworkPath(load_hosts=("lh-7",), server="rack-3"),
    round_trip_s=0.00042,
    points=(
        Point(
            streams=256,
            token_rate_per_stream_s=50.0,
            tokens_per_s=12_345.0,
            sustained_share=0.998,
            round_trip_p50_s=0.00042,
            ttft_error_p50_s=0.0011,
            ttft_error_p99_s=0.0031,
            itl_error_p50_s=0.0001,
            itl_error_p99_s=0.0014,
            cpu_per_token_s=8.1e-6,
            dispatch_delay_p99_s=0.001,
            server_lateness_p99_s=0.0002,
        ),
    ),
    highest_streams=256,
    highest_tokens_per_s=12_345.0,
)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The archives and their site, made by whichever process of a test run comes first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    with folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            make_archives(folder / "archives")
            build_site([folder / "archives"], folder / "built")
            shutil.move(folder / "built", folder / "moved")
            (folder / "ready").touch()
    return folder


@pytest.fixture(scope="session")
def archives(shared: Path) -> Path:
    """Three archives: a first sweep launched thrice, a later one with failures, and one with a hostile name in it."""
    return shared / "archives"


@pytest.fixture(scope="session")
def site(shared: Path) -> Path:
    """The site of all archives, in a folder that it was moved to after it was built."""
    return shared / "moved"


def make_archives(folder: Path) -> None:
    """Write the three archives."""
    first = folder / "20261119-220000-quick-rig"
    make_archive(first, axes=LAUNCHED_OFTEN, replicates=3, simulated=False, seconds=20)
    record = json.loads((first / "sweep.json").read_text())
    record |= {"load_hosts": ["lh-7"], "calibration": calibration_record([CALIBRATION])}
    (first / "sweep.json").write_text(json.dumps(record))
    make_archive(
        folder / "20261120-220000-quick-sim", axes=FRAGILE, started_at=START + timedelta(days=1), seconds=20, seed=1
    )
    hostile = make_archive(
        folder / "20261121-220000-hostile-sim", gpus=["NVIDIA L4"], started_at=START + timedelta(days=2), seconds=5
    )
    for path in [hostile.path / "sweep.json", *hostile.path.glob("trials/*.json")]:
        text = path.read_text().replace('"NVIDIA L4"', json.dumps(HOSTILE)).replace("1x NVIDIA L4", f"1x {HOSTILE}")
        path.write_text(text.replace('"enforce_eager=true', f'"{HOSTILE}').replace('"node-1"', '"gpu-07"'))


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
    driver = subprocess.run([sys.executable, "-m", "playwright", "--version"], capture_output=True, text=True)
    if driver.returncode != 0:
        pytest.skip(f"Playwright's driver does not start: {driver.stderr.strip()}")
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--disable-quic", *quiet]
        )
        yield running
        running.close()
