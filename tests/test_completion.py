"""Completion of commands and options, by the shells themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOKENPEAK = Path(sys.executable).with_name("tokenpeak")
BASH = """\
eval "$(tokenpeak completion bash)"
COMP_WORDS=(tokenpeak {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tokenpeak_completion tokenpeak
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = "tokenpeak completion fish | source; complete -C 'tokenpeak pru'"
ZSH = 'autoload -Uz compinit; compinit -u; eval "$(tokenpeak completion zsh)"; echo ${_comps[tokenpeak]}'


@pytest.mark.parametrize(
    ("shell", "option", "script", "found"),
    [
        ("bash", "--norc", BASH.format(words="pru"), ["prune"]),
        ("bash", "--norc", BASH.format(words="export results --format parq"), ["parquet"]),
        ("fish", "--no-config", FISH, ["prune"]),
        ("zsh", "-f", ZSH, ["_tokenpeak_completion"]),
    ],
)
def test_shell(shell: str, option: str, script: str, found: list[str], tmp_path: Path) -> None:
    """Commands and options' values that begin as what is typed are offered; zsh registers its function."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = {**os.environ, "PATH": f"{TOKENPEAK.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [shell, option, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert "" == done.stderr
    assert found == [line.split("\t")[0] for line in done.stdout.split("\n") if line]
