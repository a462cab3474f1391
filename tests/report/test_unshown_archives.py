"""One archive that cannot be shown leaves the others whole, and says why on its page and in the list of sweeps."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak.cli.site import report
from tokenpeak.errors import ArchiveError, FactsError, IncompleteSiteError
from tokenpeak.report.compare.front_pages import FrontRow, front_row
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.publish import broken_links
from tokenpeak.report.view import SweepView

pytestmark = pytest.mark.usefixtures("few_pages")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two archives."""
    for name in ("bad", "good"):
        make_archive(tmp_path / "results" / name, gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3)
    return tmp_path / "results"


def truncated(archive: Path) -> None:
    """A record that breaks off."""
    (archive / "sweep.json").write_text('{"format_version": 3, "sweep_')


def of_another_spec(archive: Path) -> None:
    """A record whose spec is none."""
    record = json.loads((archive / "sweep.json").read_text())
    record["spec"]["objective"]["metric"] = "vibes"
    (archive / "sweep.json").write_text(json.dumps(record))


def linked(archive: Path) -> None:
    """A folder with a link in it, which no archive has."""
    (archive / "notes").symlink_to("/etc/hostname")


@pytest.mark.parametrize("damage", [truncated, of_another_spec, linked])
def test_one_broken_archive_leaves_the_other_whole(damage: Callable[[Path], None], results: Path) -> None:
    """The other has all its pages; the error names the broken one, whose page and the list of sweeps say why."""
    damage(results / "bad")
    site = results.with_name("site")
    with pytest.raises(IncompleteSiteError, match=r"1 of 2 archives cannot be shown\. bad is not shown: ") as caught:
        build_site([results], site)
    page, index = (site / "bad" / "index.html").read_text(), (site / "index.html").read_text()

    assert ("bad",) == caught.value.names
    assert "This archive cannot be shown." in page
    assert '<a href="bad/index.html">bad</a> is not shown: ' in index
    assert str(results) not in page + index
    assert {"index.html", "ranking.html", "trials.html"} <= {path.name for path in (site / "good").glob("*.html")}
    assert not (site / "bad" / "data").exists()
    assert [] == broken_links(site)


def test_an_error_while_pages_are_made_is_of_one_archive(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a page leaves nothing of that sweep but the reason; mended, it is shown, and the other stays."""

    def failing(view: SweepView) -> FrontRow:
        if view.sweep_id == "bad":
            raise FactsError("'vllm' is no vLLM version.")
        return front_row(view)

    site = results.with_name("site")
    with monkeypatch.context() as patch:
        patch.setattr("tokenpeak.report.site.sweep_pages.front_row", failing)
        with pytest.raises(IncompleteSiteError, match="bad is not shown: 'vllm' is no vLLM version"):
            build_site([results], site)

        assert ["index.html"] == [path.name for path in (site / "bad").rglob("*")]
    said: list[str] = []
    build_site([results], site, say=said.append)

    assert ["pages of bad", "pages of good stay as they are"] == sorted(said)
    assert "is not shown" not in (site / "index.html").read_text()


def test_a_study_is_shown_without_the_sweep_that_cannot_be(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a study that were made before one of its sweeps failed are made again without it."""
    for path in results.glob("*/sweep.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "study": "nights"}))
    made: list[str] = []

    def failing(view: SweepView) -> FrontRow:
        made.append(view.sweep_id)
        if view.sweep_id == "good":
            raise FactsError("no facts.")
        return front_row(view)

    monkeypatch.setattr("tokenpeak.report.site.sweep_pages.front_row", failing)
    with pytest.raises(IncompleteSiteError) as caught:
        build_site([results], results.with_name("site"))

    assert ("good",) == caught.value.names
    assert ["bad", "good", "bad"] == made
    assert "good is not shown: no facts." in results.with_name("site").joinpath("index.html").read_text().replace(
        '<a href="good/index.html">good</a>', "good"
    )


def test_without_any_other_the_error_stands_alone(results: Path) -> None:
    """Where no archive can be shown there is no new site."""
    for name in ("bad", "good"):
        truncated(results / name)

    with pytest.raises(ArchiveError, match=r"sweep\.json"):
        build_site([results], results.with_name("site"))
    assert not list(results.parent.glob("*site*"))


def test_report_ends_with_an_error(results: Path) -> None:
    """`tokenpeak report` writes the site and ends with status 1 and the archive's name."""
    truncated(results / "bad")
    result = CliRunner().invoke(report, [str(results), "--output", str(results.with_name("site"))])

    assert isinstance(result.exception, IncompleteSiteError)
    assert 1 == result.exception.exit_status
    assert "bad is not shown" in str(result.exception)
    assert (results.with_name("site") / "good" / "index.html").is_file()
