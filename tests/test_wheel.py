"""The wheel: it carries what it reads, and works without a checkout."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from built_wheel import build_wheel, unpack_wheel
from tokenpeak import paths
from tokenpeak.cli import COMMANDS, tokenpeak

CARRIED = ("playbooks", "notebooks", "inventory", "analysis/sweeps", "analysis/archives", "analysis/landscapes", "site")
MESSAGE = re.compile(rf"\btokenpeak (?:{'|'.join(COMMANDS)})\b(?: --[a-z-]+(?: \{{[^}}]*\}}| [a-z]+\b)?)*")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout as it is."""
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, unpacked."""
    return unpack_wheel(wheel, tmp_path_factory.mktemp("installed")) / "site"


def run(installed: Path, cwd: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command of the wheel's, in an empty home and with no checkout on the path."""
    home = cwd / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOKENPEAK", "XDG"))}
    environment = {**kept, "PYTHONPATH": str(installed), "HOME": str(home)}
    code = "from tokenpeak.cli import main; main()"
    argv = [sys.executable, "-c", code, *arguments]
    return subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.integration
def test_it_carries_what_git_has(wheel: Path) -> None:
    """Each tracked file of the package and of what it reads, and no other: no built site, no cache."""
    listed = subprocess.run(["git", "ls-files"], cwd=paths.ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [name for name in listed.splitlines() if (paths.ROOT / name).is_file()]
    package = {name.removeprefix("analysis/") for name in tracked if name.startswith("analysis/tokenpeak/")}
    carried = {f"tokenpeak/shipped/{name}" for name in tracked if name.startswith(tuple(f"{c}/" for c in CARRIED))}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    new = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    untracked = {name.removeprefix("analysis/") for name in new} | {f"tokenpeak/shipped/{name}" for name in new}

    assert set() == (package | carried) - names
    assert set() == names - package - carried - untracked


@pytest.mark.integration
def test_it_plans_from_any_folder(installed: Path, tmp_path: Path) -> None:
    """Without a working folder, the examples are there to plan with."""
    done = run(installed, tmp_path, "plan")

    assert 0 == done.returncode, done.stderr
    assert "configs = " in done.stdout


def messages() -> list[str]:
    """Each command that a message of the package names, with `x` for what is filled in."""
    found = set()
    for path in (paths.ROOT / "analysis" / "tokenpeak").rglob("*.py"):
        found |= {re.sub(r"\{[^}]*\}", "x", each) for each in MESSAGE.findall(path.read_text())}
    return sorted(found)


@pytest.mark.parametrize("written", messages())
def test_every_command_of_a_message_exists(written: str) -> None:
    """It has these options."""
    _, name, *arguments = written.split()
    command = tokenpeak.get_command(click.Context(tokenpeak), name)

    assert command is not None
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
    assert [] == [word for word in arguments if word.startswith("--") and word not in options]
