"""An image says that the declared user of its engine is root: `user: vllm`, and its /etc/passwd has `vllm:x:0:0`.

A container's root is the node's, and leaves a file there that makes its next caller root. So through the guard command
a user in a container is a number, with its group; and what an image is asked before writes to no mount.
"""

import pwd
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine import container, images
from tokenpeak.node.installation import root_command
from tokenpeak.node.machine import process
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State

IMAGE = {"image": "hub/vllm:1", "runtime": "docker"}


def declaration(engine_user: str | None, **build: Any) -> dict[str, Any]:
    """One build."""
    return {"engine": {"user": engine_user}, "engines": [{"name": "box", "build": build}]}


@pytest.mark.parametrize(
    "user", ["vllm", "vllm:1000", "1000:vllm", "1000:", "root", "0", "00", "+0", "0:1000", "", "99999999999999999999"]
)
def test_name_of_the_image(user: str) -> None:
    """Refused with what to write, whoever else the engine is; what a runtime takes for no number is a name too."""
    with pytest.raises(ScriptError, match=r"decides whom a name means, root too\. Write the number of a user"):
        root_command.check("launch", None, declaration("nobody", **IMAGE, user=user))


@pytest.mark.parametrize("build", [{"user": "1000:1000"}, {"user": "1000"}, {}, {"rootless_user": "nobody"}])
def test_number(build: dict[str, Any]) -> None:
    """So is the engine's user on the node, and a rootless runtime's own: all of them are taken."""
    root_command.check("launch", None, declaration("nobody", **IMAGE, **build))


@pytest.mark.parametrize("build", [IMAGE, {"command": ["/opt/vllm/bin/vllm", "serve"]}])
def test_second_name_of_root(build: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has an account of number 0 by another name."""
    monkeypatch.setattr(pwd, "getpwnam", lambda _: pwd.getpwuid(0))

    with pytest.raises(ScriptError, match="'toor': through the guard command an engine must have a user of its own"):
        root_command.check("launch", None, declaration("toor", **build))


def test_group_of_a_number() -> None:
    """The image's /etc/passwd would choose it, the node's group of disks say."""
    assert ["1000:1000", "1000:0", "vllm"] == [
        container.user_option({**IMAGE, "user": user}, None) for user in ("1000", "1000:0", "vllm")
    ]


def test_question_writes_to_no_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe through the guard command asks an image that says itself as whom it runs."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(Runtime, "run", lambda _, *words, **__: commands.append(words) or process.Ran(0, "", ""))
    build = {**IMAGE, "mounts": [f"{tmp_path}:/models", "/usr:/usr:ro"]}

    images.ask(State.make(tmp_path / "state"), build, {}, ["vllm", "--version"], 9.0)

    binds = [word for word in commands[0] if word.startswith("type=bind")]
    assert [f"type=bind,src={tmp_path},dst=/models,readonly", "type=bind,src=/usr,dst=/usr,readonly"] == binds
