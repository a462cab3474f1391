"""Another user owns a program or file that the inventory declares, and writes into it what root then runs or loads.

Root ran `start`, `stop` and `check` of production, kubectl by a kubeconfig that names a program of that user,
supervisorctl by a configuration that names a module, and Docker by a Compose file that mounts /. Each is refused, by
`install` and before each use, with the file, whose it is and what to do; what root alone can write goes on.
"""

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import ATTACKER, needs_root

from tokenpeak.node import rights
from tokenpeak.node.__main__ import answer
from tokenpeak.node.guard import notify
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State, content_of
from tokenpeak.node.probe import meters
from tokenpeak.node.production import change, drain
from tokenpeak.node.production.answering import Answering
from tokenpeak.node.production.manager import checksum
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.protocol.requests import ChangeRequest, parse

NAME = pwd.getpwuid(ATTACKER).pw_name if os.geteuid() == 0 else ""


@pytest.fixture
def file(place: Path) -> Path:
    """A file in a folder of the attacker's, which root may as well own itself."""
    folder = place / "theirs"
    folder.mkdir()
    path = folder / "file"
    path.write_text(f"#!/bin/sh\ntouch {place}/ran\n")
    path.chmod(0o755)
    os.chown(folder, ATTACKER, ATTACKER)
    return path


def productions(file: str) -> dict[str, dict[str, Any]]:
    """Ways to declare a file that root runs or loads for production."""
    start = {"manager": "command", "url": "http://127.0.0.1:9", "start": ["true"], "stop": ["true"]}
    process: dict[str, Any] = {"argv": ["/bin/sleep", "9"]}
    return {
        "start": {**start, "start": [file]},
        "stop": {**start, "stop": ["/bin/sh", file]},
        "check": {**start, "check": ["/bin/sh", "-c", f"exec {file}"]},
        "option": {**start, "start": ["env", f"--chdir={file}", "true"]},
        "process": {"manager": "command", "process": {**process, "argv": [file, "serve", "m"]}},
        "script": {"manager": "command", "process": {**process, "argv": ["/usr/bin/python3", file]}},
        "environment": {"manager": "command", "process": {**process, "env": {"LD_PRELOAD": f"/lib/x.so:{file}"}}},
        "folder": {"manager": "command", "process": {**process, "cwd": str(Path(file).parent)}},
        "kubeconfig": {"manager": "kubernetes", "unit": "deployment/x", "kubeconfig": file},
        "supervisord": {"manager": "supervisord", "unit": "x", "config": file},
        "compose": {"manager": "compose", "unit": "x", "file": file},
    }


@needs_root
@pytest.mark.parametrize("way", sorted(productions("")))
def test_production(file: Path, state: State, way: str) -> None:
    """No manager is made of it, at `install` or later; of a file of root's own it is."""
    declared = productions(str(file))[way]

    with pytest.raises(
        ScriptError, match=rf"belongs to user {NAME}: whoever that is would be root\. .*chown"
    ) as refused:
        make_manager(declared, state)
    with pytest.raises(ScriptError) as install:
        rights.check({"production": declared, "engine": {"command": ["vllm"], "user": NAME}}, state)
    os.chown(file.parent, 0, 0)
    make_manager(declared, state)

    assert "(chown, chmod), or have production run as a user of its own" in refused.value.text
    assert refused.value.text in install.value.text


@needs_root
@pytest.mark.parametrize("words", [["sudo"], ["runuser", "-u", "root", "--"], ["sudo", "env", "-u", NAME]])
def test_what_is_run_as_root_after_all(file: Path, state: State, words: list[str]) -> None:
    """The same programs, which are to run it as root."""
    with pytest.raises(ScriptError, match=f"belongs to user {NAME}"):
        make_manager({**productions("/bin/true")["start"], "start": [*words, str(file)]}, state)


@needs_root
@pytest.mark.parametrize(("user", "owner"), [(None, ATTACKER), ("root", ATTACKER), ("daemon", ATTACKER), ("daemon", 1)])
def test_program_of_an_administrator_s_apply(
    file: Path, state: State, user: str | None, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measured build, whose file is the engine's user's, is to take the place of production's own program.

    That user's program would run as root, or as production's user with its key. Production's user may have its own.
    """
    config = file.parent.parent / "supervisord.conf"
    config.write_text("[program:llm]\ncommand=/bin/true serve m\n" + (f"user={user}\n" if user else ""))
    found = make_manager({"manager": "supervisord", "unit": "llm", "config": str(config)}, state)
    os.chown(file.parent, owner, owner)
    os.chown(file, owner, owner)
    before = config.read_text()

    def applied(words: list[str | int], env: dict[str, str]) -> str:
        fields = {"apply_id": "a", "holder": "h", "lease_s": 5, "confirm_within_s": 9}
        edit = {"words": words, "env": env, "image": None}
        asked = {**fields, "was_sha256": checksum(found.describe()), "edit": edit}
        try:
            change._prepared(state, found, parse(ChangeRequest, asked), None)
        except ScriptError as error:
            return error.text
        return ""

    answers = [applied([str(file), "serve", 2], {}), applied([0, 1, 2], {"PYTHONPATH": str(file.parent)})]

    is_own = owner != ATTACKER
    assert ["", ""] == answers if is_own else all(f"belongs to user {NAME}: whoever" in each for each in answers)
    assert "" == applied([0, 1, 2, "--say", "x"], {})
    assert before == config.read_text()


@needs_root
def test_other_commands(file: Path, place: Path, state: State) -> None:
    """Of the answer, of the drain, of the meter and of the notification: looked at each time."""
    words = [str(file)]
    command = {"answers_with": "command", "answer_command": words}
    nginx = {"server": "x", "file": "/etc/hostname", "reload": words}
    drains: list[dict[str, Any]] = [
        {"before": ["true"], "after": words},
        {"nginx": nginx},
        {"nginx": {**nginx, "reload": ["true"], "file": str(file)}},
        {"nginx": {**nginx, "reload": ["true"], "reach": words}},
    ]

    with pytest.raises(ScriptError, match=f"belongs to user {NAME}"):
        Answering({**command})
    with pytest.raises(ScriptError, match=f"belongs to user {NAME}"):
        Answering({"url": "https://127.0.0.1:9", "ca_file": str(file)})
    for declared in drains:
        with pytest.raises(ScriptError, match=f"tokenpeak_drain names, and .* belongs to user {NAME}"):
            drain.drain_of(declared, productions("/bin/true")["start"], state)
    with pytest.raises(notify.NotSent, match=f"belongs to user {NAME}"):
        notify.deliver({"command": words}, notify.event("test", "x", source="node"))
    assert meters.node_power_w({"power_command": words}) is None
    assert f"belongs to user {NAME}" in notify.problems([{"command": words}], "node")[0]
    assert f"belongs to user {NAME}" in str(meters.rights_problem({"power_command": words}))
    assert not (place / "ran").exists()


@needs_root
def test_folder_of_tools(file: Path, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changed hands after `install`: root looks for its programs there no longer."""
    state.put("node.json", content_of({"tools": str(file.parent), "host": "127.0.0.1"}), 0o600)
    monkeypatch.setenv("PATH", os.environ["PATH"])

    answer("status", state, None, limited=False)

    assert str(file.parent) not in os.environ["PATH"].split(":")
