"""Somebody else names a folder `$(…)`, in an archive or a working folder, and the operator types TAB and Enter.

Bash puts what it is offered on the line without quotes, so that the name ran as a command. An end of a sweep that is a
pipe, or a link to a device, held the shell at TAB.
"""

import os
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from tests.attacks.conftest import ATTACKER

from tokenpeak import cli, paths

HOSTILE = ["$(touch taken)", "`id`", "a;id", "a b", "-x", "a\nb", "..."]


@pytest.fixture
def folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, an entry of each kind in it, and others with hostile names."""
    made = place / "mine"
    for name in ("plain", *HOSTILE):
        for part in ("inventory", "results", "sweeps"):
            (made / part / name).mkdir(parents=True)
        (made / "inventory" / name / "hosts.yml").touch()
        (made / "results" / name / "sweep.json").touch()
        (made / "sweeps" / f"{name}.yml").touch()
    for name, part in (("INVENTORIES", "inventory"), ("RESULTS", "results"), ("SWEEPS", "sweeps")):
        monkeypatch.setattr(paths, name, made / part)
    monkeypatch.setattr(cli, "HOME", made)
    monkeypatch.setattr(cli, "IS_INSTALLED", True)
    monkeypatch.setenv("TOKENPEAK_STATE", str(place / "state"))
    monkeypatch.chdir(made)
    return made


def offered(*words: str, begun: str = "") -> list[str]:
    """What a shell is given to put on the line; files are the shell's own to list."""
    found = ShellComplete(cli.tokenpeak, {}, "tokenpeak", "_TOKENPEAK_COMPLETE").get_completions([*words], begun)
    return [each.value for each in found if each.type == "plain"]


COMPLETED = {
    "an inventory": (["plan", "--inventory"], "", ["plain"]),
    "a sweep": (["plan", "--sweep"], "", ["plain"]),
    "a sweep's id": (["archive"], "", ["plain"]),
    "a sweep to go on with": (["sweep", "--resume"], "", ["plain"]),
    "an archive": (["report"], "results/", ["results/plain"]),
    "what is checked": (["check"], "", ["plain", "plain"]),
}


@pytest.mark.parametrize("kind", COMPLETED)
def test_only_plain_names_are_offered(folder: Path, kind: str) -> None:
    """Of all that can be completed, nothing that a shell would run or split."""
    words, begun, names = COMPLETED[kind]

    assert names == [each for each in offered(*words, begun=begun) if each not in cli.COMMANDS and each != "rates"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")
@pytest.mark.parametrize("kind", COMPLETED)
def test_nothing_is_offered_of_others(folder: Path, kind: str) -> None:
    """Where no command works, nothing is completed."""
    os.chown(folder / "results", ATTACKER, ATTACKER)
    words, begun, _ = COMPLETED[kind]

    assert "plain" not in str(offered(*words, begun=begun))


def test_end_that_is_no_file_is_passed_over(folder: Path) -> None:
    """It is neither opened nor waited for, and the others are offered."""
    for name in ("pipe", "zero", "open", "done", "large"):
        (folder / "results" / name).mkdir()
        (folder / "results" / name / "sweep.json").touch()
    os.mkfifo(folder / "results" / "pipe" / "end.json")
    (folder / "results" / "zero" / "end.json").symlink_to("/dev/zero")
    (folder / "results" / "done" / "end.json").write_text('{"status": "completed"}')
    with (folder / "results" / "large" / "end.json").open("wb") as end:
        end.truncate(1 << 40)

    assert ["plain", "open"] == offered("sweep", "--resume")
