"""A local user puts `inventory/`, `sweeps/` and notebooks where somebody else, root for one, works or stands.

What a working folder holds runs as whoever uses it. So one that others can write, with parts of others, or that is
another's altogether is refused in words that say how to go on; it is not passed over for the next one either.
"""

import itertools
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.attacks.conftest import ATTACKER

from tokenpeak import cli, paths
from tokenpeak.errors import InputError
from tokenpeak.node.machine import trust
from tokenpeak.own_place import require_unmoved, require_working_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")


ACCESS_LISTS = ("system.posix_acl_access", "system.posix_acl_default")


def made(folder: Path) -> Path:
    """A working folder with a notebook of its own."""
    for name in ("inventory", "sweeps", "notebooks"):
        (folder / name).mkdir(parents=True)
    (folder / "notebooks" / "own.ipynb").write_text("{}")
    return folder


def given(path: Path) -> None:
    os.chown(path, ATTACKER, ATTACKER)


def listed(path: Path, name: str) -> None:
    """Let the attacker write by an access list, whose bits stand where the group's do."""
    nobody = 0xFFFFFFFF
    entries = [(1, 7, nobody), (2, 7, ATTACKER), (4, 5, nobody), (0x10, 7, nobody), (0x20, 5, nobody)]
    packed = b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, name, struct.pack("<I", 2) + packed)


def led(path: Path) -> None:
    """In place of it, a link into a folder of the attacker's."""
    theirs = path.parent.parent.with_name("theirs")
    theirs.mkdir()
    given(theirs)
    (path.rename(theirs / path.name) if path.exists() else None)
    path.symlink_to(theirs / path.name)


ATTACKS: dict[str, Callable[[Path], None]] = {
    "sticky, as /tmp": lambda folder: folder.chmod(0o1777),
    "written by all": lambda folder: folder.chmod(0o777),
    "written by a group": lambda folder: folder.chmod(0o775),
    "another's": given,
    "another's notebooks": lambda folder: given(folder / "notebooks"),
    "another's notebook": lambda folder: given(folder / "notebooks" / "own.ipynb"),
    "notebook that others write": lambda folder: (folder / "notebooks" / "own.ipynb").chmod(0o666),
    "inventory that others write": lambda folder: (folder / "inventory").chmod(0o1777),
    "notebook behind a link": lambda folder: led(folder / "notebooks" / "own.ipynb"),
    "results of another's": lambda folder: ((folder / "results").mkdir(), given(folder / "results"))[1],
    "in another's folder": lambda folder: given(folder.parent),
}


@pytest.mark.parametrize(
    ("part", "name"), [*itertools.product(["", "inventory"], ACCESS_LISTS), ("notebooks/own.ipynb", ACCESS_LISTS[0])]
)
def test_access_list(place: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str) -> None:
    """Write rights of the user's own group are his; those of an access list, in the same bits, are another's."""
    monkeypatch.setattr(trust, "_is_own_group", lambda *_: True)
    folder = made(place / "scratch")
    path = folder / part
    path.chmod(0o775)
    require_working_folder(folder)
    try:
        listed(path, name)
    except OSError:
        pytest.skip("this file system has no access lists")

    with pytest.raises(InputError, match=r"can be written by others \(mode 775, and an access list: see getfacl\)"):
        require_working_folder(folder)


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_is_refused(place: Path, attack: str) -> None:
    """Each by its own words, and with the way out."""
    folder = made(place / "around" / "scratch")
    require_working_folder(folder)
    ATTACKS[attack](folder)

    with pytest.raises(InputError, match=r"is in the hands of others: .*(chmod go-w, chown).* tokenpeak init"):
        require_working_folder(folder)


def test_it_is_not_passed_over(place: Path) -> None:
    """A command below it names it, and does not work in another folder than its user would think."""
    folder = made(place / "scratch")
    folder.chmod(0o1777)
    (folder / "mine").mkdir()
    environment = {name: text for name, text in os.environ.items() if name != "TOKENPEAK_HOME"}
    words = ["prune", "--keep", "1", "--dry-run", "--yes"]
    argv = [sys.executable, "-c", "from tokenpeak.cli import main; main()", *words]

    done = subprocess.run(argv, cwd=folder / "mine", env=environment, capture_output=True, text=True, check=False)

    assert (2, "") == (done.returncode, done.stdout)
    assert f"{folder} is in the hands of others: {folder} can be written by others (mode 1777)" in done.stderr


@pytest.mark.parametrize("words", [["report"], ["sweep", "--inventory", "sim"], ["check"], ["serve"], ["demo"]])
def test_no_command_works_there(place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Whatever reads the folder, or may; what it does is said all the same."""
    folder = made(place / "scratch")
    given(folder)
    for module in (paths, cli):
        monkeypatch.setattr(module, "HOME", folder)

    refused = CliRunner().invoke(cli.tokenpeak, words)
    helped = CliRunner().invoke(cli.tokenpeak, [words[0], "--help"])

    assert isinstance(refused.exception, InputError)
    assert "belongs to user nobody" in str(refused.exception)
    assert 0 == helped.exit_code


def test_init_makes_none_there(place: Path) -> None:
    """In a folder that others can write nothing is begun that is refused afterwards; below it, one's own is."""
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)

    there = CliRunner().invoke(cli.tokenpeak, ["init", str(shared), "--like", "v100"])
    below = CliRunner().invoke(cli.tokenpeak, ["init", str(shared / "mine"), "--like", "v100"])

    assert isinstance(there.exception, InputError)
    assert 0 == below.exit_code, below.output
    assert ["mine"] == [path.name for path in shared.iterdir()]
    require_working_folder(shared / "mine")


def test_state_of_root_in_a_home_of_others(place: Path) -> None:
    """Root with another's HOME, as some `sudo` leaves it, writes no secrets into that user's folders."""
    home = place / "home"
    (home / ".local").mkdir(parents=True)
    given(home)

    with pytest.raises(InputError, match=r"others could lead elsewhere by a link: .* belongs to user nobody.*sudo -H"):
        require_unmoved(home / ".local" / "state" / "tokenpeak", "state", "Use sudo -H.")
    require_unmoved(place / "roots" / "state", "state", "")
