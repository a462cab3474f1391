"""Publishing: what leaves is named beforehand, links are checked, a dry run sends nothing."""

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak.errors import ReportError
from tokenpeak.records.quality import SweepQuality
from tokenpeak.records.sweep import ApplyRecord, Provenance
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.publish import broken_links, leaving, publish


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    """A site that a test may spoil."""
    return Path(shutil.copytree(small, tmp_path / "copy"))


def test_every_file_of_a_site_may_leave(site: Path) -> None:
    """The allowlist names all that a build writes."""
    assert len([path for path in site.rglob("*") if path.is_file()]) == len(leaving(site))


def test_a_stranger_stops_the_publication(copy: Path, tmp_path: Path) -> None:
    """A file that no site is made of is named, and nothing leaves."""
    (copy / "static" / "id_rsa").write_text("secret")

    with pytest.raises(ReportError, match="static/id_rsa"):
        publish(copy, "dir", str(tmp_path / "out"), dry_run=False, say=lambda _: None)
    assert not (tmp_path / "out").exists()


def test_a_broken_link_stops_the_publication(copy: Path, tmp_path: Path) -> None:
    """A page that links to what is not there is named."""
    (copy / "methodology.html").unlink()

    with pytest.raises(ReportError, match=r"links to \S*methodology.html, which is not there"):
        publish(copy, "dir", str(tmp_path / "out"), dry_run=False, say=lambda _: None)


def test_a_dry_run_sends_nothing(copy: Path, tmp_path: Path) -> None:
    """A dry run lists the files and the place, and does not touch the place."""
    said: list[str] = []
    publish(copy, "dir", str(tmp_path / "out"), dry_run=True, say=said.append)

    assert "  index.html" in said
    assert f"Would replace {tmp_path / 'out'}" == said[-1]
    assert not (tmp_path / "out").exists()


def test_a_folder_receives_the_site(copy: Path, tmp_path: Path) -> None:
    """Publishing to a folder twice replaces the former site."""
    for _ in range(2):
        publish(copy, "dir", str(tmp_path / "out"), dry_run=False, say=lambda _: None)

    assert [] == broken_links(tmp_path / "out")


def test_a_branch_receives_the_site(copy: Path, tmp_path: Path) -> None:
    """Publishing to GitHub Pages pushes one commit with the site to gh-pages."""
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(bare)], check=True)
    publish(copy, "ghpages", str(bare), dry_run=False, say=lambda _: None)
    shown = subprocess.run(
        ["git", "-C", str(bare), "ls-tree", "--name-only", "gh-pages"], capture_output=True, text=True, check=True
    )

    assert {"index.html", ".nojekyll", "static"} <= set(shown.stdout.split())


@pytest.mark.e2e
def test_all_that_an_archive_may_hold_may_leave(tmp_path: Path) -> None:
    """Applies and quality lie among the raw files of a site, and the site is published."""
    archive = make_archive(tmp_path / "20261119-220000-full-rig", axes={"max_num_seqs": [8, 16]}, seconds=5)
    sweep_id = archive.read_sweep().sweep_id
    archive.write_quality(SweepQuality(sweep_id=sweep_id, references={}, verdicts=()))
    archive.write_apply(
        ApplyRecord(
            apply_id="20261120-220000-abcdef",
            kind="apply",
            sweep_id=sweep_id,
            node="node-1",
            config=None,
            simulated=True,
            who="me@here",
            started_at=datetime(2026, 11, 20, 22, tzinfo=UTC),
            duration_s=1.0,
            status="confirmed",
            message="",
            provenance=Provenance(tokenpeak_version="0.1.0", python="3.11"),
        )
    )
    build_site([archive.path], tmp_path / "site")

    raw = {name.partition("/data/raw/")[2] for name in leaving(tmp_path / "site")}
    assert {"quality.json", "applies/20261120-220000-abcdef.json"} <= raw
    publish(tmp_path / "site", "dir", str(tmp_path / "out"), dry_run=False, say=lambda _: None)
