"""A git hook, or `git rebase --exec`, publishes the site: its GIT_DIR led the site's commit onto the branch at hand.

Nor do hooks that a user, or whoever may write his git settings, has for all repositories run in the site's.
"""

import subprocess
from pathlib import Path

import pytest

from tokenpeak import git
from tokenpeak.report.site import publish
from tokenpeak.sweep import provenance


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
    return subprocess.run(["git", *words], env=git.environment(), check=True, stdout=subprocess.PIPE, text=True).stdout


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

    publish.TARGETS["ghpages"](site, str(pages), False, print)

    assert before == run("-C", str(own), "log", "--all", "--format=%H %s")
    assert ".nojekyll\nindex.html\n" == run("-C", str(pages), "ls-tree", "--name-only", "gh-pages")
    assert not (tmp_path / "was-here").exists()


def test_revision_is_the_checkout_s(own: Path) -> None:
    """A record names what was measured with, not what the hook's repository has."""
    revision = provenance.read_provenance().git_revision

    assert run("-C", str(own), "rev-parse", "HEAD").strip() != (revision or "").removesuffix("+changes")


def test_git_itself_names_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save what a user may give it to log in by."""
    named = run("rev-parse", "--local-env-vars").split()
    for name in (*named, "GIT_SSH_COMMAND"):
        monkeypatch.setenv(name, "x")

    left = {*git.environment()} & {*named, "GIT_SSH_COMMAND"}

    assert {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_SSH_COMMAND"} == left
