"""A site built once from synthetic archives, and a browser where one is found."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import golden_site
import pytest
from playwright.sync_api import Browser

from archive_factory import START, make_archive
from chromium import DESK, Window, chromium
from made_once import made_once
from tokenpeak import paths
from tokenpeak.loadgen.calibration import Calibration, NetworkPath, Point, calibration_record
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.pages import Page, pages_of_sweeps

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""A name that would run if it ever passed for markup."""
LAUNCHED_OFTEN = {"max_num_seqs": [8, 64], "enforce_eager": [True, False]}
FRAGILE = {"max_num_seqs": [16, 32, 64], "max_num_batched_tokens": [2048, 8192], "gpu_memory_utilization": [0.9, 0.95]}

CALIBRATION = Calibration(
    measured_at=START,
    host="ada-laptop",
    cpu_cores=2,
    network_path=NetworkPath(load_hosts=("lh-7",), server="rack-3"),
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
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archives, made by whichever process of a test run comes first."""
    return made_once(tmp_path_factory, "archives", make_archives)


@pytest.fixture(scope="session")
def archives(shared: Path) -> Path:
    """Three archives: a first sweep launched thrice, a later one with failures, and one with a hostile name in it."""
    return shared


@pytest.fixture(scope="session")
def site(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of all archives, in a folder that it was moved to after it was built."""

    def moved(folder: Path) -> None:
        build_site([archives], folder / "built")
        shutil.move(folder / "built", folder / "moved")

    return made_once(tmp_path_factory, "site", moved) / "moved"


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the golden archive: eight configs on one node."""
    return (
        made_once(tmp_path_factory, "small", lambda folder: build_site([golden_site.ARCHIVE], folder / "site")) / "site"
    )


@pytest.fixture(scope="session")
def h100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the search on an H100, whose configs have the longest names; a page is made of the archive alone."""

    def made(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for variable in ("XDG_DATA_HOME", "TOKENPEAK_STATE", "HF_HOME"):
                patch.setenv(variable, str(folder / variable))
            build_site([paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"], folder / "site")

    return made_once(tmp_path_factory, "h100", made) / "site"


FEW = ("index", "ranking", "trials")


@pytest.fixture
def few_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites have three of our pages a sweep, and one's own: what builds them does the same with more."""

    def few() -> tuple[Page, ...]:
        return tuple(page for page in pages_of_sweeps() if page.own or page.name in FEW)

    monkeypatch.setattr("tokenpeak.report.site.build.pages_of_sweeps", few)


def make_archives(folder: Path) -> None:
    """Write the three archives."""
    first = folder / "20261119-220000-quick-rig"
    make_archive(first, axes=LAUNCHED_OFTEN, replicates=3, simulated=False, seconds=6)
    record = json.loads((first / "sweep.json").read_text())
    record |= {"load_hosts": ["lh-7"], "calibration": calibration_record([CALIBRATION])}
    (first / "sweep.json").write_text(json.dumps(record))
    sim = folder / "20261120-220000-quick-sim"
    make_archive(sim, gpus=["NVIDIA L4"], axes=FRAGILE, started_at=START + timedelta(days=1), seconds=6, seed=1)
    later, evil = START + timedelta(days=2), folder / "20261121-220000-hostile-sim"
    hostile = make_archive(evil, gpus=["NVIDIA L4"], axes=LAUNCHED_OFTEN, started_at=later, seconds=5)
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
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def one_window(browser: Browser) -> Iterator[Window]:
    """An offline window, a year on from now."""
    context = browser.new_context(offline=True, viewport=DESK)
    context.clock.install(time=datetime.now(UTC) + timedelta(days=366))
    yield Window(context)
    context.close()


@pytest.fixture
def window(one_window: Window) -> Window:
    """The window of all tests of a module, as new."""
    return one_window.cleared()
