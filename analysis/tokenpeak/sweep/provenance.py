"""Provenance of a record: versions of the software that measures, and the checkout's revision."""

import platform
import subprocess
from importlib import metadata

from tokenpeak import paths
from tokenpeak.git import environment
from tokenpeak.records import Provenance

_PACKAGES = ("ansible-core", "ansible-runner", "httptools", "numpy", "polars", "pydantic", "uvloop")


def read_provenance() -> Provenance:
    """The versions installed here; the git revision is marked `+changes` when tracked files differ from it."""
    return Provenance(
        tokenpeak_version=metadata.version("tokenpeak"),
        git_revision=_git_revision(),
        python=platform.python_version(),
        packages={name: metadata.version(name) for name in _PACKAGES},
    )


def _git_revision() -> str | None:
    revision = _git("rev-parse", "HEAD")
    if revision is None:
        return None
    return f"{revision}+changes" if _git("status", "--porcelain", "--untracked-files=no") else revision


def _git(*arguments: str) -> str | None:
    """Git's answer in the checkout; None without git or a checkout."""
    if paths.IS_INSTALLED:  # A repository around the environment is another project's.
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(paths.ROOT), *arguments],  # noqa: S607 - git is where the user's PATH has it
            env=environment(),
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
