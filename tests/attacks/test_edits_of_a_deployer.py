"""The deployer, who may change production's arguments through root's command, has root start or show something else.

He puts a word in the program's place, sets a variable that loads code, moves a secret to where it is shown, reads it
in a refusal, or sends words that a manager reads otherwise. Production that runs as root, or whose processes are not
seen, is not his to change.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import ATTACKER, needs_root

from tokenpeak.node import rights
from tokenpeak.node.machine import sockets
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.manager import Command, Manager, text
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.compose import ComposeManager
from tokenpeak.node.production.managers.kubernetes import KubernetesManager

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
    monkeypatch.setattr(rights, "root_problem", lambda manager: None)
    monkeypatch.setattr(rights, "user_problem", lambda *_: None)


def refusal(found: Manager, words: list[Any], env: dict[str, str | None] | None = None) -> str | None:
    """Why the change of these words and variables is refused to a restricted user; None when it is not."""
    was = found.command(found.describe())
    try:
        new = found.edited(was, {"words": words, "env": env or {}, "image": None})
        rights.require_permitted_change(DECLARATION, found, found.describe(), new)
    except ScriptError as error:
        return error.text
    return None


@pytest.mark.parametrize(
    "words",
    [
        ["/bin/sh", "-c", "id", "serve"],
        ["/bin/sh", 1, 2],
        [2],
        [0, "-x", 1, 2],
        ["/usr/bin/env", 0, 1, 2],
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


@needs_root
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


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process of another user, which listens wherever somebody looks."""
    with subprocess.Popen(["sleep", "60"], user=ATTACKER, group=ATTACKER, extra_groups=[]) as child:
        monkeypatch.setattr(sockets, "listeners", lambda *address: [f"{child.pid} (sleep) of user nobody"])
        yield child.pid
        child.kill()


@needs_root
@pytest.mark.parametrize("manager", ["command", "kubernetes"])
def test_manager_that_does_not_say(place: Path, proxy: int, monkeypatch: pytest.MonkeyPatch, manager: str) -> None:
    """Refused, and `describe` says so before, with the way out."""
    declared = {"manager": manager, "url": "http://127.0.0.1:9", "start": ["true"], "stop": ["true"]}
    found = make_manager(declared, State.make(place / "state"))
    monkeypatch.setattr(found, "members", lambda: None)

    problem = rights.root_problem(found)

    assert "Which user production runs as is not seen" in str(problem)
    assert "run it as a user of its own" in str(problem)


SECRET = "s3cret-value"
SECRET_WORDS = [
    *("env", f"HF_TOKEN={SECRET}", "vllm", "serve", "m"),
    *("--port", "8000", "--api-key", SECRET, f"{SECRET}-2", f"--hf-token={SECRET}"),
    *("--override", f'{{"api_key": "{SECRET}"}}', "--x", "${MY_TOKEN}", "--y", "${HOST}"),
]
NAME = "--served-model-name"
PROGRAM = [0, 1, 2, 3, 4]


@pytest.fixture
def production(tmp_path: Path) -> Manager:
    """Production with secrets in its command."""
    declared = {"manager": "command", "process": {"argv": SECRET_WORDS}}
    return make_manager(declared, State.make(tmp_path / "state"))


def edited(production: Manager, words: list[Any]) -> Command:
    return production.edited(production.command(production.describe()), {"words": words, "env": {}, "image": None})


@pytest.mark.parametrize(
    "words",
    [
        [*PROGRAM, NAME, 8],
        [*PROGRAM, 7, 8, NAME, 9],
        [2, 3, 4, NAME, 1],
        [*PROGRAM, NAME, 12],
        [*PROGRAM, NAME, 14],
        [*PROGRAM, "--api-key", 8],
    ],
)
def test_behind_another_flag(production: Manager, words: list[Any]) -> None:
    """Refused, whatever it is put behind; the refusal does not repeat it."""
    with pytest.raises(ScriptError, match="may be secret, and stays behind") as refused:
        edited(production, words)

    assert SECRET not in refused.value.text


@pytest.mark.parametrize(
    "words",
    [
        [*range(len(SECRET_WORDS))],
        [*PROGRAM, 7, 8, 9, "--port", "1", 11, 12, 10, 13, 14],
        [*PROGRAM, NAME, 16, 5, 6],
    ],
)
def test_behind_its_own(production: Manager, words: list[Any]) -> None:
    """Flags with their values come in any order, new ones between them, and nothing secret is shown."""
    command = edited(production, words)

    assert SECRET not in text("here", command, production.shown_words(command))


def text_of(refused: pytest.ExceptionInfo[ScriptError]) -> str:
    """The refusal, which is about that command."""
    assert "[secret]" in refused.value.text
    assert "/opt/vllm" in refused.value.text or "printf" in refused.value.text
    return refused.value.text


def test_command_of_a_manager_that_fails(state: State) -> None:
    """The manager's own command, which may have production's in it, and what it printed."""
    script = f"import sys; sys.exit('podman: bad argument --api-key {SECRET}')"
    words = [sys.executable, "-S", "-c", script, "/opt/vllm", f"--api-key={SECRET}"]

    with pytest.raises(ScriptError) as refused:
        Manager({}, state).do(words)

    assert SECRET not in text_of(refused)


SECTION = """[supervisord]
logfile=/tmp/x

[program:llm]
command=/opt/vllm serve m --say "a b" 100%%
environment=A="1",B="two words",C='say "x" y',P="%(ENV_HOME)s"
user=vllm
"""


@pytest.fixture
def supervised(tmp_path: Path) -> Manager:
    """A program of supervisord."""
    file = tmp_path / "supervisord.conf"
    file.write_text(SECTION)
    declared = {"manager": "supervisord", "unit": "llm", "config": str(file)}
    return make_manager(declared, State.make(tmp_path / "state"))


def prepared(found: Manager, words: list[str], env: dict[str, str]) -> tuple[str, Command]:
    """The file's new text and what it starts, where it can hold these."""
    was = found.describe()
    command = found.command(was)
    edit: dict[str, Any] = {"words": [*range(len(command.words)), *words], "env": env, "image": None}
    own = found.prepared(was, found.edited(command, edit), "a-1")
    return str(own["content"]), found.command({"own": own})


@pytest.mark.parametrize(
    "value",
    [
        '1\\",LD_PRELOAD=/tmp/evil.so,X=\\"2',
        '1",LD_PRELOAD="/tmp/evil.so',
        "both \" and '",
        "'at its ends'",
        'x ;y"',
    ],
)
def test_supervisord_variables_that_cannot_be_held(supervised: Manager, value: str) -> None:
    """A value that supervisord would read as another, or as several, is refused."""
    try:
        text, command = prepared(supervised, [], {"NEW": value})
    except ScriptError as error:
        assert "LD_PRELOAD" not in error.text, error.text
        return
    assert value == command.env["NEW"]
    assert {"A", "B", "C", "P", "NEW"} == set(command.env)
    assert "LD_PRELOAD" not in text.replace(value, "")


@pytest.mark.parametrize("word", ["a ;b", "a #b", "x ; user=root"])
def test_supervisord_words_that_begin_a_comment(supervised: Manager, word: str) -> None:
    """Inside quotes too `;` begins a comment after a space, by supervisord's own reader."""
    with pytest.raises(ScriptError):
        prepared(supervised, [word], {})


@pytest.mark.parametrize("text", ["${X}", "$$X", "$$$(X)", "a$", "100%"])
def test_dollars_are_no_references(tmp_path: Path, text: str) -> None:
    """Compose and Kubernetes get back exactly what was sent."""
    for kind in (ComposeManager, KubernetesManager):
        found = kind({}, State.make(tmp_path / "state"))
        kept = found.literal(text)
        assert text == found.meaning(kept)
        # Each run of dollars is even, so that none is left over to begin a reference.
        assert all(len(run) % 2 == 0 for run in _runs(kept))


def _runs(text: str) -> list[str]:
    return [run for run in "".join(letter if letter == "$" else " " for letter in text).split() if run]
