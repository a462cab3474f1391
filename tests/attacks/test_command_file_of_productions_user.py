"""Production's user owns the folder of `command_file`, and puts links and second names there while root applies.

Root must change nothing elsewhere, give that user no file, and show nothing of a file that this user cannot read. What
that user may change is changed as that user; a folder that several may write is refused.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.attacks.conftest import ATTACKER

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.kept_file import KeptFile

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")

SECRET = "root:$6$s3cret\n"


@pytest.fixture
def victim(place: Path) -> Path:
    """A file that root alone can read."""
    folder = place / "roots"
    folder.mkdir(mode=0o700)
    path = folder / "shadow"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def file(place: Path) -> Path:
    """The command file in a folder of production's user."""
    folder = place / "productions"
    folder.mkdir()
    path = folder / "command"
    path.write_text("/opt/vllm\nserve\nprod\n")
    path.chmod(0o644)
    for each in (folder, path):
        os.chown(each, ATTACKER, ATTACKER)
    return path


def is_untouched(victim: Path) -> bool:
    facts = victim.stat()
    return (SECRET, 0, 0o600) == (victim.read_text(), facts.st_uid, stat.S_IMODE(facts.st_mode))


def test_link_that_is_swapped_in(file: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between writing the new file and giving it its mode and owner, its name becomes a link to a file of root's."""
    real, new = os.fsync, file.with_name(".command.tokenpeak-new")

    def swapping(descriptor: int) -> None:
        real(descriptor)
        new.unlink(missing_ok=True)
        new.symlink_to(victim)

    monkeypatch.setattr(os, "fsync", swapping)
    KeptFile(file).prepare("/bin/sh\n")

    assert is_untouched(victim)


@pytest.mark.parametrize("put", [Path.symlink_to, Path.hardlink_to], ids=["link", "second name"])
@pytest.mark.parametrize("name", [".command.tokenpeak-new", ".command.tokenpeak-before"])
def test_name_that_is_there_already(file: Path, victim: Path, name: str, put: Callable[[Path, Path], None]) -> None:
    """The names beside it lead to a file of root's: that is neither written, nor given away, nor shown."""
    put(file.with_name(name), victim)

    KeptFile(file).prepare("/bin/sh\n")
    KeptFile(file).write("/bin/sh\n")

    assert is_untouched(victim)
    assert "/bin/sh\n" == file.read_text()
    assert (ATTACKER, 0o644) == (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode))


@pytest.mark.parametrize("put", [Path.symlink_to, Path.hardlink_to], ids=["link", "second name"])
def test_file_that_leads_elsewhere(place: Path, file: Path, victim: Path, put: Callable[[Path, Path], None]) -> None:
    """The file itself is another's: `describe` shows nothing of it, and no apply takes it for production's command."""
    file.unlink()
    put(file, victim)
    declared = {"manager": "command", "start": ["true"], "stop": ["true"], "command_file": str(file)}
    definition = make_manager(declared, State.make(place / "state"))

    with pytest.raises(ScriptError) as refused:
        definition.describe()
    with pytest.raises(ScriptError):
        KeptFile(file).prepare("/bin/sh\n")

    assert "s3cret" not in refused.value.text
    assert str(file) in refused.value.text
    assert is_untouched(victim)


def test_folder_that_leads_elsewhere(file: Path, victim: Path) -> None:
    """The folder becomes a link to one of root's, where a file of the same name would be replaced."""
    folder = file.parent
    beside = victim.with_name("command")
    beside.write_text(SECRET)
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(victim.parent)
    os.lchown(folder, ATTACKER, ATTACKER)

    for change in (lambda kept: kept.prepare("/bin/sh\n"), lambda kept: kept.write("/bin/sh\n"), KeptFile.clean):
        with pytest.raises(ScriptError):
            change(KeptFile(file))

    assert SECRET == beside.read_text()
    assert ["command", "shadow"] == sorted(path.name for path in victim.parent.iterdir())


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o2775])
def test_folder_that_several_may_write(place: Path, mode: int) -> None:
    """Nobody's rights are the right ones there: refused, with the way out."""
    folder = place / "shared"
    folder.mkdir()
    (folder / "command").write_text("/opt/vllm\n")
    os.chown(folder, 0, ATTACKER)
    folder.chmod(mode)

    with pytest.raises(ScriptError, match=r"several users could lead it elsewhere: .* or move the file to a folder"):
        KeptFile(folder / "command").prepare("/bin/sh\n")

    assert ["command"] == [path.name for path in folder.iterdir()]


def test_file_of_its_user_is_changed_and_put_back(file: Path) -> None:
    """What no attack is goes on: the very file with its owner and mode is there again, and nothing beside it."""
    before, inode = file.read_text(), file.stat().st_ino
    kept = KeptFile(file)

    kept.prepare("/opt/vllm\nserve\nother\n")
    kept.write("/opt/vllm\nserve\nother\n")
    changed = kept.read()
    kept.write(before)
    kept.clean()

    assert "/opt/vllm\nserve\nother\n" == changed
    assert (before, inode, ATTACKER) == (file.read_text(), file.stat().st_ino, file.stat().st_uid)
    assert ["command"] == [path.name for path in file.parent.iterdir()]
