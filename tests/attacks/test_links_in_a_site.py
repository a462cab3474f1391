"""Somebody who can write in a built site puts links there that lead to the private files of whoever publishes it.

A link to a folder is no file, and what is below it is none of the site's. Only the files that were listed leave,
whatever is put there afterwards, whichever way the site is sent.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from leak_search import leaks
from tokenpeak.errors import ReportError
from tokenpeak.report.site import publish as publishing
from tokenpeak.report.site.publish import TARGETS, leaving, publish

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


def test_a_pipe_stops_it_too(built: Path) -> None:
    """What would be read without end is no file of a site."""
    os.mkfifo(built / "static" / "x.css")

    with pytest.raises(ReportError, match=r"no site is made of: static/x\.css"):
        leaving(built)


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


def test_a_folder_that_becomes_a_link_is_not_entered(
    built: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that was listed would be another one: nothing leaves."""
    listed = publishing.leaving

    def swapped(site: Path) -> list[str]:
        files = listed(site)
        LINKS["folder of the site's own"](site, private)
        return files

    monkeypatch.setattr(publishing, "leaving", swapped)

    with pytest.raises(ReportError, match="could not be copied"):
        publish(built, "dir", str(built.with_name("out")), dry_run=False, say=lambda _: None)
