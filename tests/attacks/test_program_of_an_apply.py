"""The deployer, who may change production's arguments through root's command, tries to start something else as root.

He names how many words are the program (`program: 0`, so that none was compared), puts a word of the present command in
the program's place, changes a variable that the program's words refer to, or one that loads code. Whatever he sends,
the node itself sees which words are the program, as they will be started; and production that runs as root is not his
to change at all.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import permission
from tokenpeak.node.production.manager import Manager
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.protocol.apply import ChangeRequest
from tokenpeak.node.protocol.requests import parse

VLLM = ["/opt/vllm/bin/vllm", "serve"]
DECLARATION = {
    "engine": {"command": ["/opt/other/bin/vllm", "serve"], "user": "vllm", "env": {"HF_HOME": "/data/hub"}},
}
NOBODY = 65534


def definition(tmp_path: Path, argv: list[str], env: dict[str, str] | None = None) -> Manager:
    """Production that is kept as a process with these words."""
    declared = {"manager": "command", "url": "http://127.0.0.1:9", "process": {"argv": argv, "env": env or {}}}
    return make_manager(declared, State.make(tmp_path / "state"))


def have_own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Production has a user of its own, now and after the change."""
    monkeypatch.setattr(permission, "root_problem", lambda manager: None)
    monkeypatch.setattr(permission, "user_problem", lambda *_: None)


def refusal(found: Manager, words: list[Any], env: dict[str, str | None] | None = None) -> str | None:
    """Why the change of these words and variables is refused to a restricted user; None when it is not."""
    was = found.command(found.describe())
    try:
        new = found.edited(was, {"words": words, "env": env or {}, "image": None})
        permission.require(DECLARATION, found, found.describe(), new)
    except ScriptError as error:
        return error.text
    return None


def test_other_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image is a program too."""
    have_own_user(monkeypatch)
    found = definition(tmp_path, [*VLLM, "m"])
    was = found.command(found.describe())
    new = found.edited(was, {"words": [0, 1, 2], "env": {}, "image": "evil:1"})

    with pytest.raises(ScriptError, match="takes a declared build's image"):
        permission.require(DECLARATION, found, found.describe(), new)


def request(**edit: Any) -> dict[str, Any]:
    fields = {"apply_id": "a", "holder": "h", "was_sha256": "0" * 64, "lease_s": 5, "confirm_within_s": 9}
    return {**fields, "edit": {"words": ["/bin/sh"], "env": {}, "image": None, **edit}}


def test_number_of_the_program_s_words_is_not_the_sender_s() -> None:
    """A request that says which words are the program is refused whole."""
    parse(ChangeRequest, request())
    for program in (0, 1, True):
        with pytest.raises(ScriptError, match="edit is an object of 4"):
            parse(ChangeRequest, request(program=program))


@pytest.mark.parametrize(
    "words",
    [
        ["/bin/sh", "-c", "id", "serve"],
        ["/bin/sh", 1, 2],
        [2, 1, 3],
        [2],
        [1, 0, 2],
        [0, "-x", 1, 2],
        ["/usr/bin/env", 0, 1, 2],
        ["/opt/other/bin/vllm", "run", "serve"],
        ["./vllm", "serve", 2],
    ],
)
def test_other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[Any]) -> None:
    """What is started is compared with every word in its place, those that stay as well."""
    have_own_user(monkeypatch)
    found = definition(tmp_path, [*VLLM, "/home/evil/model", "--port", "8000"])

    assert "production's own program or a declared build" in (refusal(found, words) or "") or words == [2]
    assert refusal(found, words)
    assert refusal(found, [0, 1, 2, "--say", "serve"]) is None
    assert refusal(found, ["/opt/other/bin/vllm", "serve", 2]) is None


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"LD_PRELOAD": "/tmp/x.so"}, "LD_PRELOAD may not be set"),
        ({"PATH": "/tmp"}, "PATH may not be set"),
        ({"VLLM_PLUGINS": "evil"}, "VLLM_PLUGINS loads code"),
        ({"HF_HOME": "/tmp"}, "HF_HOME is not allowed"),
        ({"VLLM_BIN": "/bin/sh"}, "VLLM_BIN is part of production's program"),
        ({"PYTHONPATH": None}, "PYTHONPATH may not be set"),
        ({"HF_HOME": "/data/hub", "VLLM_USE_V1": "1"}, None),
    ],
)
def test_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str | None], said: str | None
) -> None:
    """Only what a config may set, or what the inventory itself sets so, and nothing that the program is made of."""
    have_own_user(monkeypatch)
    found = definition(tmp_path, ["/usr/bin/env", "${VLLM_BIN}", "serve", "m"], {"PYTHONPATH": "/opt/safe"})

    answer = refusal(found, [0, 1, 2, 3], env)

    assert answer is None if said is None else said in (answer or "")


@pytest.fixture
def process_of_nobody() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"], user=NOBODY, group=NOBODY, extra_groups=[]) as child:
        yield child.pid
        child.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")
def test_production_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_of_nobody: int) -> None:
    """Production that runs as root, or as nobody knows whom, is refused; that of a user of its own is not."""
    found = definition(tmp_path, ["/usr/bin/setpriv", f"--reuid={NOBODY}", *VLLM, "m"])
    answers = []
    for pids in ([os.getpid()], [process_of_nobody, os.getpid()], [], [process_of_nobody]):
        monkeypatch.setattr(found, "members", lambda pids=pids: pids.__contains__)
        answers.append(refusal(found, [0, 1, 2, 3, 4, "--say", "x"]))

    assert [True, True, False] == ["runs as root" in str(answer) for answer in answers[:3]]
    assert "is not seen" in str(answers[2])
    assert answers[3] is None
