"""The engine's user leads the engine's program, or a folder of a mount, to a file that root alone can read.

The answer to `tuner` has digests of both, and a short secret is guessed from its digest. They are taken with the
engine's rights, and of a mount only of what was opened below it, however its folders are swapped meanwhile.
"""

import hashlib
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import ATTACKER

from tokenpeak.node.engine import models
from tokenpeak.node.engine.installed import engine_version, entry_digest
from tokenpeak.node.machine.state import State

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")

NAME = pwd.getpwuid(ATTACKER).pw_name if os.geteuid() == 0 else ""
PIN = "#!/bin/sh\nPIN=4711\n"


@pytest.fixture
def theirs(place: Path) -> Path:
    """A folder of the attacker's."""
    folder = place / "theirs"
    folder.mkdir()
    os.chown(folder, ATTACKER, ATTACKER)
    return folder


@pytest.fixture
def victim(place: Path) -> Path:
    """A program that root alone can read."""
    folder = place / "roots"
    folder.mkdir()
    path = folder / "key"
    path.write_text(PIN)
    path.chmod(0o700)
    return path


def test_program_of_the_engine(theirs: Path, victim: Path) -> None:
    """What the engine's user cannot read is not digested for it; its own program is."""
    (theirs / "vllm").symlink_to(victim)
    build = {"command": [f"{theirs}/vllm", "serve"]}

    secret = entry_digest({"user": NAME}, build)
    (theirs / "vllm").unlink()
    (theirs / "vllm").write_text("#!/bin/sh\n")
    (theirs / "vllm").chmod(0o755)

    assert secret is None
    assert f"sha256:{hashlib.sha256(b'#!/bin/sh' + bytes([10])).hexdigest()}" == entry_digest({"user": NAME}, build)
    assert entry_digest({"user": "nobody-here"}, build) is None


def test_version_beside_the_engine(theirs: Path, place: Path) -> None:
    """Nor is a version read for that user in a folder that it cannot enter."""
    info = place / "roots" / "site-packages" / "vllm-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Version: 6.6.6\n")
    (place / "roots").chmod(0o700)
    (theirs / "bin").mkdir()
    (theirs / "lib").mkdir()
    (theirs / "lib" / "python3.11").symlink_to(place / "roots")
    (theirs / "bin" / "vllm").write_text(f"#!{theirs}/bin/sh\n")
    (theirs / "bin" / "sh").write_text("#!/bin/sh\necho 0.32.0\n")
    for program in (theirs / "bin").iterdir():
        program.chmod(0o755)

    found = engine_version({"user": NAME}, {"command": [f"{theirs}/bin/vllm", "serve"]}, State.make(place / "state"))

    assert "0.32.0" == found


def swapping(monkeypatch: pytest.MonkeyPatch, folder: Path, target: Path) -> None:
    """The folder leads to another once it was looked at: before a file in it is opened by this process."""
    real = os.open
    moved = folder.with_name("moved")

    def opening(path: Any, *args: Any, **options: Any) -> int:
        if not moved.exists() and Path(str(path)).parent.name == folder.name and Path(str(path)).name == "key":
            folder.rename(moved)
            folder.symlink_to(target)
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", opening)


@pytest.mark.parametrize("name", ["/models/below/m", "/models/m"])
def test_folder_of_a_mount_that_is_swapped(
    place: Path, victim: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In between, a folder in the mount becomes a link to root's."""
    mount = place / "models"
    inside = mount / name.removeprefix("/models/")
    inside.mkdir(parents=True)
    (inside / "key").write_text("mine")
    build = {"image": "vllm:1", "mounts": [f"{mount}:/models"]}
    before = models.model_digest(build, name, {}, [], None)
    swapping(monkeypatch, inside, victim.parent)

    after = models.model_digest(build, name, {}, [], None)

    assert (before or "").startswith("sha256:")
    assert after is None


def test_source_of_a_mount_that_is_a_link(theirs: Path, victim: Path) -> None:
    """The mount lies in a folder of the attacker's: what it leads to is looked at as that user."""
    victim.parent.chmod(0o700)
    build = {"image": "vllm:1", "mounts": [f"{theirs}/models:/models"]}
    (theirs / "models").symlink_to(victim.parent.parent)

    secret = models.model_digest(build, "/models/roots", {}, [], None)
    (theirs / "models").unlink()
    (theirs / "models" / "m").mkdir(parents=True)
    (theirs / "models" / "m" / "key").write_text("mine")

    assert secret is None
    assert (models.model_digest(build, "/models/m", {}, [], None) or "").startswith("sha256:")


def test_mount_that_a_group_may_write(place: Path) -> None:
    """A folder of models that several fill is digested as before: nobody leads it elsewhere."""
    mount = place / "models"
    (mount / "m").mkdir(parents=True)
    (mount / "m" / "key").write_text("mine")
    os.chown(mount, 0, ATTACKER)
    mount.chmod(0o2775)

    found = models.model_digest({"image": "vllm:1", "mounts": [f"{mount}:/models"]}, "/models/m", {}, [], None)

    assert (found or "").startswith("sha256:")


@pytest.mark.parametrize("build", [{"image": "vllm:1"}, {"command": ["/bin/true", "serve"]}])
def test_name_that_is_no_utf_8(place: Path, build: dict[str, Any]) -> None:
    """Of a file beside the model; it counts as its bytes do, and ends no launch."""
    folder = place / "m"
    folder.mkdir()
    found = set()
    for name in (b"\xff", b"\xfe"):
        (folder / os.fsdecode(name)).write_text("mine")
        found.add(models.model_digest({**build, "mounts": [f"{place}:{place}"]}, str(folder), {}, [], None))
        (folder / os.fsdecode(name)).unlink()

    assert [True, True] == [(one or "").startswith("sha256:") for one in found]
