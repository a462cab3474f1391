"""A site of which trials came, went or changed is, byte for byte, the site that is made from nothing."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import zstandard

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.report.site import reuse
from tokenpeak.report.site.build import build_site
from tokenpeak.report.site.render import environment
from tokenpeak.store.archive import Archive

SWEEP = "20261120-220000-large-sim"
AXES: dict[str, list[object]] = {"max_num_seqs": [8, 16, 32, 64, 128, 256]}
WRITER, READER = 3, 8
"""Trials whose logs name a colleague: what stands for her is numbered by the first, and stands in both."""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of twelve trials, and the site of it."""
    home = tmp_path_factory.mktemp("first")
    archive = make_archive(home / "results" / SWEEP, gpus=["NVIDIA L4"], axes=AXES, replicates=2, seconds=3)
    for number, names in ((WRITER, "ann@example.com"), (READER, "bob@example.com, ann@example.com")):
        path = archive.log_path(ids(archive)[number])
        path.write_bytes(zstandard.ZstdCompressor().compress(f"started by {names}\n".encode()))
    build_site([home / "results"], home / "site")
    return home


@pytest.fixture
def home(first: Path, tmp_path: Path) -> Path:
    """The same in a folder of the test's own: the raw files with their times, and the very files of the site."""
    shutil.copytree(first / "results", tmp_path / "results")
    for name in ("site", ".site.trials"):
        shutil.copytree(first / name, tmp_path / name, copy_function=os.link)
    shutil.copy2(first / ".site.made.json", tmp_path)
    return tmp_path


def ids(archive: Archive) -> list[str]:
    """The sweep's trials in their order."""
    return [path.stem for path in archive.trial_paths()]


def add(archive: Archive) -> None:
    """One more launch of the config that was launched last."""
    last = archive.read_trial(ids(archive)[-1])
    later = last.started_at + timedelta(seconds=90)
    again = last.model_copy(
        update={
            "trial_id": f"{len(ids(archive)) + 50:04}-{last.config.config_id[:8]}",
            "replicate": last.replicate + 1,
            "started_at": later,
        }
    )
    archive.write_trial(again, archive.requests_path(last.trial_id), archive.read_log(last.trial_id) or "")


def add_unplanned(archive: Archive) -> None:
    """Two failed launches of a config that no plan has, one of them between others."""
    failed = archive.read_trial(ids(archive)[0])
    config = failed.config.model_copy(update={"config_id": "abcdef0123456789", "name": "another"})
    for number in ("0001", "0101"):
        update = {"trial_id": f"{number}-abcdef01", "config": config, "status": "failed", "runs": ()}
        archive.write_trial(failed.model_copy(update=update))


def change(archive: Archive) -> None:
    """A trial whose throughput is another, so that ranks are others."""
    path = archive.trial_path(ids(archive)[4])
    raw = json.loads(path.read_text())
    for run in raw["runs"]:
        run["summary"]["output_tok_per_s"] *= 3
    path.write_text(json.dumps(raw) + "\n")


def damage(archive: Archive) -> None:
    """A trial's record, another's requests and a third's log that can no longer be read."""
    broken = ids(archive)
    archive.trial_path(broken[2]).write_text("{")
    archive.requests_path(broken[5]).write_bytes(b"PAR1")
    archive.log_path(broken[6]).write_bytes(b"no log")


def remove(archive: Archive) -> None:
    """A trial that is gone with its files; what its log gave a number gets another."""
    for path in list((archive.path / "trials").glob(f"{ids(archive)[WRITER]}.*")):
        path.unlink()


def end_again(archive: Archive) -> None:
    """Another end of the sweep, in whose problems a colleague is named first."""
    end = archive.read_end()
    assert end is not None
    archive.write_end(end.model_copy(update={"status": "interrupted", "problems": ("ask carl@example.com",)}))


def replan(archive: Archive) -> None:
    """A sweep that says another model."""
    path = archive.path / "sweep.json"
    path.write_text(path.read_text().replace("Llama-3.1-8B", "Llama-3.1-9B"))


def files(folder: Path) -> dict[str, bytes]:
    """Each file below a folder, by its path."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def inodes(site: Path) -> dict[str, int]:
    """Which file each trial's page and cleaned file is on the disk."""
    sweep = site / SWEEP
    found = [*sweep.glob("trials/*.html"), *sweep.glob("data/raw/trials/*.json")]
    return {path.relative_to(sweep).as_posix(): path.stat().st_ino for path in found}


@pytest.mark.parametrize(
    "happened",
    [
        pytest.param((add,), marks=pytest.mark.integration),
        pytest.param((add, add), marks=pytest.mark.e2e),
        pytest.param((change, damage), marks=pytest.mark.e2e),
        pytest.param((add_unplanned, remove), marks=pytest.mark.e2e),
        pytest.param((end_again, replan), marks=pytest.mark.e2e),
    ],
)
def test_the_site_is_that_made_from_nothing(home: Path, happened: Sequence[Callable[[Archive], None]]) -> None:
    """Whatever happened to the archive, one after the other, every file is equal; and no other file stands there."""
    for each in happened:
        each(Archive(home / "results" / SWEEP))
        build_site([home / "results"], home / "site")
    build_site([home / "results"], home / "fresh")

    assert files(home / "fresh") == files(home / "site")


@pytest.mark.e2e
def test_what_says_the_same_is_reused(home: Path) -> None:
    """After one more trial, each page and cleaned file that is equal is the one of before, and most are equal.

    But for those in whose logs, where they are shown, something got its number, and the pages of these.
    """
    archive = Archive(home / "results" / SWEEP)
    add(archive)
    build_site([home / "results"], home / "site", texts=True)
    before, said = inodes(home / "site"), files(home / "site" / SWEEP)
    add(archive)
    build_site([home / "results"], home / "site", texts=True)
    after, now = inodes(home / "site"), files(home / "site" / SWEEP)
    equal = {name for name in before if said[name] == now[name]}
    numbering = tuple(ids(archive)[number] for number in (WRITER, READER))
    anew = {name for name in equal if before[name] != after[name]}

    assert {name for name in equal if Path(name).stem in numbering} == anew
    assert len(equal) > len(before) * 0.8


@pytest.mark.integration
@pytest.mark.usefixtures("few_pages")
def test_another_version_makes_all_anew(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the code that makes pages, no page and no cleaned file is that of before."""
    before = inodes(home / "site")
    templates = shutil.copytree(paths.TEMPLATES, tmp_path / "templates")
    page = templates / "trial.html"
    page.write_text(page.read_text().replace("What happened in this launch?", "What happened?"))
    monkeypatch.setattr(paths, "TEMPLATES", templates)
    monkeypatch.setattr(reuse, "code_digest", reuse.code_digest.__wrapped__)
    monkeypatch.setattr("tokenpeak.report.site.page_writer.environment", lambda: environment(templates))
    build_site([home / "results"], home / "site")
    after = inodes(home / "site")

    assert before.keys() == after.keys()
    assert not set(before.items()) & set(after.items())
    assert all("What happened?" in path.read_text() for path in (home / "site" / SWEEP / "trials").glob("*.html"))


@pytest.mark.e2e
def test_a_changed_file_of_the_former_site_is_made_again(home: Path) -> None:
    """What somebody wrote into a page or a cleaned file of the site does not go over to the next."""
    add(Archive(home / "results" / SWEEP))
    for path in (home / "site" / SWEEP).glob("trials/*.html"):
        path.unlink()
        path.write_text("another's")
    for path in (home / "site" / SWEEP).glob("data/raw/trials/*.json"):
        path.unlink()
        path.write_text("another's")
    build_site([home / "results"], home / "site")
    build_site([home / "results"], home / "fresh")

    assert files(home / "fresh") == files(home / "site")


@pytest.mark.e2e
def test_notes_that_cannot_be_read_are_none(home: Path) -> None:
    """Damaged rows cost time, and change nothing; as does a damaged note."""
    notes = home / ".site.trials" / SWEEP
    for damaged in (("rows/runs.parquet", "rows/idle_power.json"), ("trials.json",)):
        add(Archive(home / "results" / SWEEP))
        for name in damaged:
            (notes / name).unlink()
            (notes / name).write_text('{"made_of": 1')
        build_site([home / "results"], home / "site")
    build_site([home / "results"], home / "fresh")

    assert files(home / "fresh") == files(home / "site")
