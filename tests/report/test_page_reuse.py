"""Pages of before stay only where what makes them is the same."""

import shutil
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report.site import render
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.render import environment

pytestmark = pytest.mark.integration


@pytest.mark.usefixtures("few_pages")
def test_another_version_makes_all_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of what makes pages, none is that of before."""
    archive = make_archive(tmp_path / "one", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, seconds=3)
    site = build_site([archive.path], tmp_path / "site").parent
    before = {path: path.stat().st_ino for path in site.glob("one/**/*.html")}
    templates = shutil.copytree(paths.TEMPLATES, tmp_path / "templates")
    page = templates / "trial.html"
    page.write_text(page.read_text().replace("What happened in this launch?", "What happened?"))
    monkeypatch.setattr(paths, "TEMPLATES", templates)
    monkeypatch.setattr(render, "code_digest", render.code_digest.__wrapped__)
    monkeypatch.setattr("tokenpeak.report.site.sweep_pages.environment", lambda: environment(templates))
    build_site([archive.path], tmp_path / "site")

    assert not set(before.items()) & {(path, path.stat().st_ino) for path in site.glob("one/**/*.html")}
    assert all("What happened?" in path.read_text() for path in (site / "one" / "trials").glob("*.html"))
