"""Completion, by the shells themselves: commands, options, and names of inventories, sweeps and archives."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from archive_factory import make_archive
from tokenpeak.cli import tokenpeak

TOKENPEAK = Path(sys.executable).with_name("tokenpeak")
BASH = """\
eval "$(tokenpeak completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tokenpeak_completion tokenpeak
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with an archive."""
    made = tmp_path_factory.mktemp("mine")
    subprocess.run([TOKENPEAK, "init", str(made), "--like", "v100"], check=True, capture_output=True)
    make_archive(made / "results" / "20261121-quick", seconds=5)
    make_archive(made / "results" / "20261122-quick", seconds=5, end=False)
    return made


def said(shell: str, script: str, folder: Path) -> list[str]:
    """What a shell prints, in lines."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = {**os.environ, "PATH": f"{TOKENPEAK.parent}:{os.environ['PATH']}", "HOME": str(folder)}
    option = ["--norc"] if shell == "bash" else ["-f"] if shell == "zsh" else ["--no-config"]
    done = subprocess.run(
        [shell, *option, "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "" == done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("pru", ["prune"]),
        ("check r", ["rates"]),
        ("init --like h1", ["h100"]),
        ("export results --format parq", ["parquet"]),
    ],
)
def test_what_begins_as_what_is_typed(words: str, found: list[str]) -> None:
    """Commands, options' values and examples that begin so are offered."""
    *given, begun = words.split()
    offered = ShellComplete(tokenpeak, {}, "tokenpeak", "_TOKENPEAK_COMPLETE").get_completions(given, begun)

    assert found == [each.value for each in offered]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tokenpeak plan --inventory ''", ["sim", "v100"]),
        ("tokenpeak plan --sweep v", ["v100-deepseek-r1-32b"]),
        ("tokenpeak archive 2026", ["20261122-quick", "20261121-quick"]),
        ("tokenpeak sweep --resume ''", ["20261122-quick"]),
        ("tokenpeak report results/", ["results/20261122-quick", "results/20261121-quick"]),
    ],
)
def test_bash(words: str, found: list[str], folder: Path) -> None:
    """Bash is offered the names of the working folder."""
    assert found == said("bash", BASH.format(words=words), folder)


def test_fish(folder: Path) -> None:
    """Fish is offered the same."""
    lines = said("fish", "tokenpeak completion fish | source; complete -C 'tokenpeak plan --inventory v'", folder)

    assert ["v100"] == lines


def test_zsh(folder: Path) -> None:
    """Zsh registers its function for the command."""
    script = 'autoload -Uz compinit; compinit -u; eval "$(tokenpeak completion zsh)"; echo ${_comps[tokenpeak]}'

    assert ["_tokenpeak_completion"] == said("zsh", script, folder)
