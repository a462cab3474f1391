"""Sweeps made in processes of their own, and sweeps that stay: the site is the same file by file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from archive_factory import make_archive
from tokenpeak.errors import ReportError, SpecError
from tokenpeak.node.machine import clock
from tokenpeak.report.site import page_helper, processes
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.page_helper import PageHelper
from tokenpeak.report.site.pages import SWEEP_PAGES

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
    monkeypatch.setattr(processes, "LARGE", 1)
    said: list[str] = []
    site = build_site([results], tmp_path / "site", say=said.append).parent

    assert files(alone) == files(site)
    assert [f"pages of {name}" for name in ("four", "one", "three", "two")] == sorted(said)


@pytest.mark.e2e
def test_a_helper_makes_the_same_pages(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of a sweep whose pages two processes make is equal, its notebooks too."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    alone = build_site([results / "one"], tmp_path / "alone").parent
    monkeypatch.setattr(processes, "LARGE", 1)
    made: list[str] = []
    blocks_of = page_helper.blocks_of
    monkeypatch.setattr(page_helper, "blocks_of", lambda page, *rest: made.append(page.name) or blocks_of(page, *rest))
    begin = PageHelper.begin

    def begun(helper: PageHelper, *rest: Any) -> None:
        begin(helper, *rest)
        # Of so few trials all pages would be made before the helper has begun.
        assert clock.wait_until(lambda: bool(helper.next_page.value), 60, poll_s=0.01)

    monkeypatch.setattr(PageHelper, "begin", begun)
    site = build_site([results / "one"], tmp_path / "site").parent

    assert files(alone) == files(site)
    assert len(made) < len(SWEEP_PAGES)


@pytest.mark.usefixtures("few_pages")
def test_the_error_of_a_helper_is_the_error_of_the_build(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper that was killed is said, and no site is left behind."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(processes, "LARGE", 1)
    begin = PageHelper.begin

    def killed(helper: PageHelper, *rest: Any) -> None:
        begin(helper, *rest)
        helper._process.kill()

    monkeypatch.setattr(PageHelper, "begin", killed)
    with pytest.raises(ReportError, match="ended with status -9"):
        build_site([results / "one"], tmp_path / "site")
    assert not list(tmp_path.glob("*site*"))


@pytest.mark.e2e
def test_sweeps_that_stay_are_shown_as_before(results: Path, tmp_path: Path) -> None:
    """A site of which one sweep is new and the others stay is, in every file, that of all sweeps made at once."""
    build_site([results / name for name in ("four", "one", "three")], tmp_path / "site")
    said: list[str] = []
    site = build_site([results], tmp_path / "site", say=said.append).parent

    assert files(build_site([results], tmp_path / "fresh").parent) == files(site)
    assert 3 == sum(line.endswith("stay as they are") for line in said)


@pytest.mark.usefixtures("few_pages")
def test_the_error_of_a_process_is_the_error_of_the_build(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a sweep's pages cannot be made of is said as without processes, and no site is left behind."""
    monkeypatch.setattr(processes, "LARGE", 1)
    archive = make_archive(tmp_path / "in" / "worse", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, seconds=3)
    sweep = archive.path / "sweep.json"
    sweep.write_text(json.dumps(json.loads(sweep.read_text()) | {"spec": {"name": 1}}))

    with pytest.raises(SpecError) as alone:
        build_site([archive.path], tmp_path / "alone")
    with pytest.raises(SpecError) as beside:
        build_site([results / "one", archive.path], tmp_path / "site")
    assert str(alone.value) == str(beside.value)
    assert not list(tmp_path.glob("*site*"))
