"""Somebody puts links into a built site that lead to private files, or runs `publish` by a hook of git's.

Only the files that were listed leave, whatever is put there afterwards, whichever way the site is sent; and the site's
commit goes where it is published, by no hook of the caller's.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from leak_search import leaks
from tokenpeak import own_place
from tokenpeak.errors import ReportError
from tokenpeak.report.site import publish as publishing
from tokenpeak.report.site.publish import TARGETS, publish

SECRET = "kn4ry-of-home"
ALLOWED = "static/site.css"
"""A name that a site's file has."""


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder that never leaves."""
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "site.css").write_text(SECRET)
    return folder


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A site of two files."""
    site = tmp_path / "site"
    (site / "static").mkdir(parents=True)
    (site / "index.html").write_text("<!doctype html><title>t</title>")
    (site / ALLOWED).write_text("p {}")
    return site


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "folder": lambda site, private: (site / "static" / "x").symlink_to(private),
    "folder of the site's own": lambda site, private: (
        (site / "static").rename(site.with_name("away")),
        (site / "static").symlink_to(private),
    )[1],
    "file": lambda site, private: (site / "static" / "x.css").symlink_to(private / "site.css"),
    "nowhere": lambda site, private: (site / "static" / "x").symlink_to(private / "none"),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_link_stops_the_publication(built: Path, private: Path, link: str, *, dry_run: bool) -> None:
    """Whatever it leads to, and in words that name it."""
    LINKS[link](built, private)

    with pytest.raises(ReportError, match=r"static(/x\S*)? is a link to somewhere else"):
        publish(built, "dir", str(built.with_name("out")), dry_run=dry_run, say=lambda _: None)

    assert not built.with_name("out").exists()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("late", ["folder", "file", "plain file"])
def test_what_is_put_there_afterwards_does_not_leave(
    built: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, late: str
) -> None:
    """Between the list and the sending, by each target."""
    listed = publishing.leaving
    sent = tmp_path / "sent"

    def swapped(site: Path) -> list[str]:
        files = listed(site)
        if late == "plain file":
            (site / "static" / "late.css").write_text(SECRET)
        else:
            LINKS[late](site, private)
        return files

    def runs(words: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        if words[0] == "rsync":
            subprocess.check_call(["cp", "-rL", words[-2].rstrip("/"), str(sent)])
        elif words[0] == "aws":
            subprocess.check_call(["cp", "-rL", words[-2], str(sent)])
        elif "push" in words:
            subprocess.check_call(["cp", "-rL", words[2], str(sent)])
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(publishing, "leaving", swapped)
    monkeypatch.setattr(publishing.shutil, "which", lambda _: "/usr/bin/true")
    monkeypatch.setattr(publishing.subprocess, "run", runs)

    publish(
        built, target, {"dir": str(sent), "s3": "s3://x/y"}.get(target, "host:/srv"), dry_run=False, say=lambda _: None
    )

    assert (sent / ALLOWED).read_text() == "p {}"
    assert [] == leaks(sent, [SECRET])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose hook this process is started by."""
    path = tmp_path / "own"
    run("init", "--quiet", str(path))
    author = ("-c", "user.name=me", "-c", "user.email=me@localhost")
    run("-C", str(path), *author, "commit", "--quiet", "--allow-empty", "--message", "Own work")
    for name, text in {"GIT_DIR": ".git", "GIT_WORK_TREE": "", "GIT_INDEX_FILE": ".git/index"}.items():
        monkeypatch.setenv(name, str(path / text))
    return path


def run(*words: str) -> str:
    return subprocess.run(
        ["git", *words], env=own_place.git_environment(), check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def test_site_is_a_commit_of_its_own(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes where it is published, by no hook, and nothing of the caller's repository is changed."""
    site, pages, hooks = tmp_path / "site", tmp_path / "pages", tmp_path / "hooks"
    for folder in (site, hooks):
        folder.mkdir()
    (site / "index.html").touch()
    (hooks / "pre-commit").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-here\n")
    (hooks / "pre-commit").chmod(0o755)
    (tmp_path / "gitconfig").write_text(f"[core]\n  hooksPath = {hooks}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    run("init", "--quiet", "--bare", str(pages))
    before = run("-C", str(own), "log", "--all", "--format=%H %s")

    TARGETS["ghpages"](site, str(pages), False, print)

    assert before == run("-C", str(own), "log", "--all", "--format=%H %s")
    assert ".nojekyll\nindex.html\n" == run("-C", str(pages), "ls-tree", "--name-only", "gh-pages")
    assert not (tmp_path / "was-here").exists()
