"""A user of the node leads a path that the inventory declares to a file that root alone can read or write.

A command file, a file of secrets, the engine's program and a model's folder: what another may lead elsewhere is
refused, or opened with that user's own rights, and nothing of the file is shown.
"""

import hashlib
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import ATTACKER, needs_root

from tokenpeak.node import rights
from tokenpeak.node.engine import models, serving
from tokenpeak.node.engine.engine import declared_environment
from tokenpeak.node.engine.installed import entry_digest
from tokenpeak.node.engine.serving import Check, ServerAnswer
from tokenpeak.node.guard import notify
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.answering import Answering
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.kept_file import KeptFile

SHADOWED = "root:$6$s3cret\n"


@pytest.fixture
def shadow(place: Path) -> Path:
    """A file that root alone can read."""
    folder = place / "roots"
    folder.mkdir(mode=0o700)
    path = folder / "shadow"
    path.write_text(SHADOWED)
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


def is_untouched(shadow: Path) -> bool:
    facts = shadow.stat()
    return (SHADOWED, 0, 0o600) == (shadow.read_text(), facts.st_uid, stat.S_IMODE(facts.st_mode))


@needs_root
def test_link_that_is_swapped_in(file: Path, shadow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between writing the new file and giving it its mode and owner, its name becomes a link to a file of root's."""
    real, new = os.fsync, file.with_name(".command.tokenpeak-new")

    def swapping(descriptor: int) -> None:
        real(descriptor)
        new.unlink(missing_ok=True)
        new.symlink_to(shadow)

    monkeypatch.setattr(os, "fsync", swapping)
    KeptFile(file).prepare("/bin/sh\n")

    assert is_untouched(shadow)


@needs_root
@pytest.mark.parametrize("put", [Path.symlink_to, Path.hardlink_to], ids=["link", "second name"])
def test_file_that_leads_elsewhere(place: Path, file: Path, shadow: Path, put: Callable[[Path, Path], None]) -> None:
    """The file itself is another's: `describe` shows nothing of it, and no apply takes it for production's command."""
    file.unlink()
    put(file, shadow)
    declared = {"manager": "command", "start": ["true"], "stop": ["true"], "command_file": str(file)}
    definition = make_manager(declared, State.make(place / "state"))

    with pytest.raises(ScriptError) as refused:
        definition.describe()
    with pytest.raises(ScriptError):
        KeptFile(file).prepare("/bin/sh\n")

    assert "s3cret" not in refused.value.text
    assert str(file) in refused.value.text
    assert is_untouched(shadow)


@needs_root
@pytest.mark.parametrize("mode", [0o1777, 0o2775])
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
def roots_program(place: Path) -> Path:
    """A program that root alone can read."""
    folder = place / "roots"
    folder.mkdir()
    path = folder / "key"
    path.write_text(PIN)
    path.chmod(0o700)
    return path


@needs_root
def test_program_of_the_engine(theirs: Path, roots_program: Path) -> None:
    """What the engine's user cannot read is not digested for it; its own program is."""
    (theirs / "vllm").symlink_to(roots_program)
    build = {"command": [f"{theirs}/vllm", "serve"]}

    secret = entry_digest({"user": NAME}, build)
    (theirs / "vllm").unlink()
    (theirs / "vllm").write_text("#!/bin/sh\n")
    (theirs / "vllm").chmod(0o755)

    assert secret is None
    assert f"sha256:{hashlib.sha256(b'#!/bin/sh' + bytes([10])).hexdigest()}" == entry_digest({"user": NAME}, build)
    assert entry_digest({"user": "nobody-here"}, build) is None


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


@needs_root
@pytest.mark.parametrize("name", ["/models/below/m", "/models/m"])
def test_folder_of_a_mount_that_is_swapped(
    place: Path, roots_program: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In between, a folder in the mount becomes a link to root's."""
    mount = place / "models"
    inside = mount / name.removeprefix("/models/")
    inside.mkdir(parents=True)
    (inside / "key").write_text("mine")
    build = {"image": "vllm:1", "mounts": [f"{mount}:/models"]}
    before = models.model_digest(build, name, {}, [], None)
    swapping(monkeypatch, inside, roots_program.parent)

    after = models.model_digest(build, name, {}, [], None)

    assert (before or "").startswith("sha256:")
    assert after is None


SECRET = "AWS_SECRET=r00ts-own"


@pytest.fixture
def victim(place: Path) -> Path:
    """A file that root alone can read."""
    path = place / "credentials"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def led(place: Path, victim: Path, how: str) -> Path:
    """The declared path, which leads to the victim."""
    folder = place / "theirs"
    folder.mkdir(exist_ok=True)
    path = folder / "key"
    if how == "link":
        path.symlink_to(victim)
    elif how == "folder":
        (folder / "below").symlink_to(place)
        path = folder / "below" / victim.name
    elif how == "second name":
        path.hardlink_to(victim)
    else:
        (place / "here").symlink_to(folder)
        path.symlink_to(victim)
        path = place / "here" / "key"
    os.chown(folder, ATTACKER, ATTACKER)
    return path


@needs_root
@pytest.mark.parametrize("how", ["link", "folder", "second name", "link of root's"])
def test_path_that_others_lead(place: Path, victim: Path, how: str) -> None:
    """Neither a key, nor the engine's environment, nor the secret of a notification; `install` says what to do."""
    path = str(led(place, victim, how))
    declaration: dict[str, Any] = {"engine": {"env_file": path}, "production": {"api_key_file": path}}
    receiver = {"webhook": "http://127.0.0.1:9", "secret_file": path}

    with pytest.raises(ScriptError) as key:
        serving.key_from_file(path)
    with pytest.raises(ScriptError) as environment:
        declared_environment(declaration)
    with pytest.raises(ScriptError) as signature:
        notify.deliver(receiver, notify.event("test", "x", source="node"))
    problems = rights.secret_problems(declaration)

    for text in (key.value.text, environment.value.text, signature.value.text, *problems):
        assert "others could lead to another file" in text
        assert "belongs to user nobody. Move it to a folder that root alone may write" in text
        assert SECRET not in text
    assert 2 == len(problems)


@pytest.mark.parametrize("content", ["", "two\nlines", "k\x00y", "schlüssel"])
def test_key_that_is_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    """It is refused before any request, by `install` too, and not repeated."""
    sent: list[str] = []
    monkeypatch.setattr(serving, "request", lambda url, *_, **__: sent.append(url) or ServerAnswer(0, ""))
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(0o600)
    declared = {"url": "http://127.0.0.1:9", "api_key_file": str(path)}
    check: Check = lambda connection: None  # noqa: E731

    with pytest.raises(ScriptError) as refused:
        Answering(declared).served_model(check)

    assert [refused.value.text] == rights.secret_problems({"production": declared})
    assert "one word of printable characters" in refused.value.text
    assert not content or content not in refused.value.text
    assert [] == sent
