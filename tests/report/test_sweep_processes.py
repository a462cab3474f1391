"""Sweeps made in processes of their own, and sweeps that stay: the site is the same file by file."""

import json
import shutil
from pathlib import Path

import pytest

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.errors import SpecError
from tokenpeak.report.site import reuse, sweep_pages
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.render import environment

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps of one spec, and two of one study."""
    folder = tmp_path_factory.mktemp("processes") / "results"
    for name, study in (("one", None), ("two", None), ("three", "nightly"), ("four", "nightly")):
        make_archive(folder / name, gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, study=study, seconds=3)
    return folder


@pytest.fixture(scope="module")
def alone(results: Path) -> Path:
    """The site of them, made in this process."""
    return build_site([results], results.with_name("alone")).parent


def files(site: Path) -> dict[str, bytes]:
    """Each file of a site, by its path."""
    found = (path for path in site.rglob("*") if path.is_file())
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in found}


@pytest.mark.e2e
def test_processes_make_the_same_site(
    results: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is equal, whichever process made it, and each sweep is said."""
    monkeypatch.setattr(sweep_pages, "LARGE", 1)
    said: list[str] = []
    site = build_site([results], tmp_path / "site", say=said.append).parent

    assert files(alone) == files(site)
    assert [f"pages of {name}" for name in ("four", "one", "three", "two")] == sorted(said)


@pytest.mark.usefixtures("few_pages")
def test_another_version_makes_all_anew(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of what makes pages, none is that of before."""
    site = build_site([results / "one"], tmp_path / "site").parent
    before = {path: path.stat().st_ino for path in site.glob("one/**/*.html")}
    templates = shutil.copytree(paths.TEMPLATES, tmp_path / "templates")
    page = templates / "trial.html"
    page.write_text(page.read_text().replace("What happened in this launch?", "What happened?"))
    monkeypatch.setattr(paths, "TEMPLATES", templates)
    monkeypatch.setattr(reuse, "code_digest", reuse.code_digest.__wrapped__)
    monkeypatch.setattr("tokenpeak.report.site.page_writer.environment", lambda: environment(templates))
    build_site([results / "one"], tmp_path / "site")

    assert not set(before.items()) & {(path, path.stat().st_ino) for path in site.glob("one/**/*.html")}
    assert all("What happened?" in path.read_text() for path in (site / "one" / "trials").glob("*.html"))


@pytest.mark.usefixtures("few_pages")
def test_the_error_of_a_process_is_the_error_of_the_build(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a sweep's pages cannot be made of is said as without processes, and no site is left behind."""
    monkeypatch.setattr(sweep_pages, "LARGE", 1)
    archive = make_archive(tmp_path / "in" / "worse", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3)
    sweep = archive.path / "sweep.json"
    sweep.write_text(json.dumps(json.loads(sweep.read_text()) | {"spec": {"name": 1}}))

    with pytest.raises(SpecError) as alone:
        build_site([archive.path], tmp_path / "alone")
    with pytest.raises(SpecError) as beside:
        build_site([results / "one", archive.path], tmp_path / "site")
    assert str(alone.value) == str(beside.value)
    assert not list(tmp_path.glob("*site*"))
