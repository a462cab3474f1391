"""Script, declaration and secret in a node's state folder: put there by real commands, and looked at by one."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node import bundle as node_put
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.protocol.requests import PutRequest
from tokenpeak.sweep.ansible.plugins import NodeFiles

SECRET, VALUE = "secret-0123abcd", "canary-in-the-secret"


def files_for(folder: Path, **changes: Any) -> NodeFiles:
    """What belongs into a state folder below `folder`."""
    declaration = {"state_dir": str(folder / "state"), "python": sys.executable, "node": "gpu1", "port": 8099}
    files = NodeFiles(
        script=write_bundle(folder / "packed.pyz").read_bytes(),
        declaration=declaration,
        secret_name=SECRET,
        secret_value=VALUE,
    )
    return replace(files, **changes)


def run(argv: list[str], given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """A command's end, as on a node."""
    return subprocess.run(argv, input=given, capture_output=True, check=False)


def put_by_command(files: NodeFiles) -> dict[str, Any]:
    """The answer of the command that puts these files there."""
    done = run(files.put(), files.put_input())
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict), done
    return answer


def put(files: NodeFiles, folder: Path) -> bool:
    """Whether anything was changed by putting these files there, by the node script's own function in this process."""
    request = PutRequest(declaration=dict(files.declaration), secret=files.secret_name, secret_value=files.secret_value)
    return node_put.put(State.make(folder / "state"), request, folder / "packed.pyz").changed


def are_there(files: NodeFiles) -> bool:
    """Whether one look finds them there."""
    return files.are_there(run(files.look(sys.executable)).stdout.decode())


@pytest.fixture
def files(tmp_path: Path) -> NodeFiles:
    """Files that have been put into a folder that was not there."""
    found = files_for(tmp_path)
    assert put(found, tmp_path)
    return found


def test_files_are_put_and_found(tmp_path: Path) -> None:
    """They have the content that was sent, are their user's alone, and are not put again."""
    files, state = files_for(tmp_path), tmp_path / "state"
    assert not are_there(files)
    assert put_by_command(files)["changed"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in (state, *state.iterdir())}

    assert are_there(files)
    assert {"state": 0o700, "tokenpeak-node.pyz": 0o755, "node.json": 0o600, SECRET: 0o600} == modes
    assert (tmp_path / "packed.pyz").read_bytes() == (state / "tokenpeak-node.pyz").read_bytes()
    assert "gpu1" == json.loads((state / "node.json").read_text())["node"]
    assert f"{VALUE}\n" == (state / SECRET).read_text()
    before = (state / "node.json").stat().st_ino
    assert put_by_command(files)["changed"] is False
    assert before == (state / "node.json").stat().st_ino


def rewritten(path: Path) -> None:
    """The same bytes behind a link."""
    shutil.copy2(path, path.with_name("elsewhere"))
    path.unlink()
    path.symlink_to(path.with_name("elsewhere"))


def appended(path: Path) -> None:
    """A byte more."""
    with path.open("ab") as stream:
        stream.write(b" ")


def torn(path: Path) -> None:
    """A byte less."""
    os.truncate(path, path.stat().st_size - 1)


def opened(path: Path) -> None:
    """Readable and writable by everybody."""
    path.chmod(0o777)


def given_away(path: Path) -> None:
    """Another user's."""
    os.chown(path, 65534, -1)


CHANGES: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "appended": appended,
    "torn": torn,
    "opened": opened,
    "linked": rewritten,
    **({"given away": given_away} if os.geteuid() == 0 else {}),
}


@pytest.mark.parametrize("name", ["tokenpeak-node.pyz", "node.json", SECRET])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_by_hand_is_seen_and_mended(
    name: str, change: Callable[[Path], None], files: NodeFiles, tmp_path: Path
) -> None:
    """A file that was changed on the node, in content, mode, owner or kind, is put there again."""
    path = tmp_path / "state" / name
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    change(path)

    assert not are_there(files)
    assert put(files, tmp_path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert are_there(files)


def test_secret_is_in_no_argument(files: NodeFiles) -> None:
    """It goes to standard input alone: no command, representation or refusal has it."""
    said = [*files.look(sys.executable), *files.put(), *files.install(), repr(files)]
    with pytest.raises(ScriptError, match=r"secret_value has the hidden character U\+0000") as refused:
        replace(files, secret_value=f"{VALUE}\0").put_input()

    assert not any(VALUE in each for each in (*said, str(refused.value)))
    assert VALUE.encode() in files.put_input()
