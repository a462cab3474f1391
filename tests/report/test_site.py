"""The built site: whole, self-contained, marked, and closed to what data may hold."""

import hashlib
import json
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from archive_factory import START, make_archive
from tokenpeak.errors import ReportError
from tokenpeak.records import EndRecord
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.pages import SWEEP_PAGES
from tokenpeak.report.site.publish import broken_links
from tokenpeak.store.archive import Archive

HOSTILE = "</script><img src=x onerror=alert(1)>"
RIG, SIM = "20261119-220000-quick-rig", "20261120-220000-quick-sim"


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A sweep before its first trial."""
    axes = {"max_num_seqs": [8]}
    return make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes=axes, replicates=0, end=False).path


def test_each_sweep_has_each_page(site: Path) -> None:
    """Every sweep has all its pages, one of a single kind of hardware none of it, and a page for each trial."""
    every = {page.name for page in SWEEP_PAGES}

    assert every == {path.stem for path in (site / RIG).glob("*.html")}
    assert every - {"hardware"} == {path.stem for path in (site / SIM).glob("*.html")}
    assert 24 == len(list((site / RIG / "trials").glob("*.html")))


def test_links_lead_somewhere(site: Path) -> None:
    """Each link leads to a file of the site and to a place that is in it; nothing is loaded from elsewhere."""
    assert [] == broken_links(site)


def test_pages_forbid_inline_code(site: Path) -> None:
    """Each page has the strict policy, and neither style nor script of its own that runs."""
    for page in site.rglob("*.html"):
        html = page.read_text()

        assert "default-src 'none'; script-src 'self'; style-src 'self'" in html
        assert " style=" not in html
        assert html.count("<script") == html.count("<script defer src=") + html.count('<script type="application/json"')


def test_hostile_names_stay_text(site: Path) -> None:
    """A name that is markup appears escaped on pages, in specs and in the feed."""
    for path in [*site.rglob("*.html"), site / "feed.atom"]:
        assert "<img src=x" not in path.read_text()
    assert "&lt;img src=x" in (site / "20261121-220000-hostile-sim" / "ranking.html").read_text()
    assert (
        HOSTILE
        in json.loads((site / "20261121-220000-hostile-sim/data/raw/sweep.json").read_text())["nodes"][0]["gpus"][0][
            "name"
        ]
    )


def test_simulated_results_are_marked(site: Path) -> None:
    """Every page and download of a simulated sweep says so, and none of a real one does."""
    for page in (site / SIM).rglob("*.html"):
        assert "simulated</span>" in page.read_text()
    for page in (site / RIG).rglob("*.html"):
        assert "simulated</span>" not in page.read_text()
    for file in (site / SIM / "data" / "csv").glob("*.csv"):
        assert "simulated" in pl.read_csv(file)["mark"][0]
    assert pl.read_parquet(site / SIM / "data" / "frames" / "runs.parquet")["simulated"].all()


def test_methodology_shows_the_calibration(site: Path) -> None:
    """What the load client could measure stands on the methodology page, without the machines' names."""
    page = (site / "methodology.html").read_text()

    assert "from load-host-1 to node-3 over http: up to 256 streams and 12,345 tok/s" in page
    assert "<td>99.8%</td><td>1.1</td><td>3.1</td><td>0.1</td><td>1.4</td><td>8.1</td><td>0.2</td>" in page
    assert "ada-laptop" not in page
    assert "lh-7" not in page
    assert "rack-3" not in page


def test_checksums_hold(site: Path) -> None:
    """SHA256SUMS names every download with its digest."""
    data = site / RIG / "data"
    lines = (data / "SHA256SUMS").read_text().splitlines()
    files = {path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()} - {"SHA256SUMS"}

    assert files == {line[66:] for line in lines}
    for line in lines[:20]:
        assert line[:64] == hashlib.sha256((data / line[66:]).read_bytes()).hexdigest()


def test_failures_are_shown_with_their_cause(site: Path) -> None:
    """A trial without a result is in the ranking, with what happened; the log's own line stays at home."""
    html = (site / SIM / "ranking.html").read_text()

    assert '<td class="k-text">out of memory</td>' in html
    assert "GPU memory ran out: 1.22 GiB more were wanted." in html
    assert "torch.OutOfMemoryError" not in html
    assert "(text withheld; the option --texts shows it)" in html


def test_two_archives_of_one_sweep_are_refused(tmp_path: Path) -> None:
    """Two archives that hold the same sweep are an error that names it, and no site is left behind."""
    first = make_archive(tmp_path / "one" / "same", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3)
    second = make_archive(tmp_path / "two" / "same", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3)

    with pytest.raises(ReportError, match="holds sweep same"):
        build_site([first.path, second.path], tmp_path / "site")
    assert not list(tmp_path.glob("*site*"))


@pytest.mark.usefixtures("few_pages")
def test_pages_that_are_still_right_stay(tmp_path: Path) -> None:
    """A second build makes pages of the sweep that changed, keeps those of the other, and shows both."""
    for name in ("one", "two"):
        make_archive(tmp_path / "results" / name, gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3, end=False)
    said: list[str] = []
    build_site([tmp_path / "results"], tmp_path / "site")
    before = (tmp_path / "site" / "one" / "trials.html").stat().st_ino
    Archive(tmp_path / "results" / "two").write_end(
        EndRecord(
            sweep_id="two",
            status="completed",
            ended_at=START + timedelta(minutes=2),
            trials=1,
            production_downtime_s={},
        )
    )
    build_site([tmp_path / "results"], tmp_path / "site", say=said.append)

    assert ["pages of one stay as they are", "pages of two"] == sorted(said)
    assert before == (tmp_path / "site" / "one" / "trials.html").stat().st_ino
    assert "unfinished" not in (tmp_path / "site" / "two" / "index.html").read_text()
    assert [] == broken_links(tmp_path / "site")


def test_a_folder_that_is_no_site_is_left_alone(tmp_path: Path) -> None:
    """Building into a folder with other files is refused before pages are made, and the files stay."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")

    said: list[str] = []
    with pytest.raises(ReportError, match="is no site"):
        build_site([archive.path], tmp_path / "mine", say=said.append)
    assert [] == said
    assert "years" == (tmp_path / "mine" / "thesis.txt").read_text()


def test_an_archive_with_failures_only_has_a_site(tmp_path: Path) -> None:
    """A sweep in which nothing worked still shows what happened."""
    axes = {"max_num_batched_tokens": [8192], "gpu_memory_utilization": [0.95]}
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes=axes)
    build_site([archive.path], tmp_path / "site")

    assert "no config gave a result that may be ranked" in (tmp_path / "site" / "a" / "index.html").read_text()


def test_a_sweep_before_its_first_trial_has_a_site(begun: Path) -> None:
    """An archive without trials, as a live page finds it, is rendered."""
    site = build_site([begun], begun.with_name("site"), live=True).parent

    assert "unfinished" in (site / "a" / "index.html").read_text()
    assert "0 of 1 trials" in (site / "live.html").read_text()
