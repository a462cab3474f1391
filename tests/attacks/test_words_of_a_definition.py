"""Words and variables that mean something to the manager whose file or command they are written into.

A quote or backslash that supervisord reads otherwise than we do, `$` that Compose and Kubernetes replace, a `;` that
begins a comment: each reaches the engine as it was sent, or the change is refused while production serves.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine.command import Command
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.manager import Manager
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.compose import ComposeManager
from tokenpeak.node.production.managers.kubernetes import KubernetesManager

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
        "1',LD_PRELOAD='/tmp/evil.so",
        "both \" and '",
        "'at its ends'",
        'x ;y"',
        "x #y",
        'ends with "',
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


def test_supervisord_variables(supervised: Manager) -> None:
    """What can be held is held, `%` twice, and what stays is as it stood there."""
    text, command = prepared(supervised, ["%(ENV_X)s", "$X"], {"NEW": "50% (\\)", "Q": 'a "b" c', "A": "2"})

    kept = """environment=A="2",B="two words",C='say "x" y',P="%(ENV_HOME)s","""
    assert f"""{kept}NEW="50%% (\\)",Q='a "b" c'\n""" in text
    assert ("50% (\\)", 'a "b" c') == (command.env["NEW"], command.env["Q"])
    assert "'%%(ENV_X)s' '$X'\n" in text
    assert ["100%", "%(ENV_X)s", "$X"] == supervised.shown_words(command)[-3:]
    assert "user=vllm\n" in text


@pytest.mark.parametrize("word", ["a ;b", "a #b", "x ; user=root"])
def test_supervisord_words_that_begin_a_comment(supervised: Manager, word: str) -> None:
    """Inside quotes too `;` begins a comment after a space, by supervisord's own reader."""
    with pytest.raises(ScriptError):
        prepared(supervised, [word], {})


@pytest.mark.parametrize("text", ["$X", "${X}", "$$X", "$(X)", "$$(X)", "$$$(X)", "a$", "100%"])
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


def test_kubernetes_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new variable is literal; one that stays keeps its reference."""
    container = {
        "name": "vllm",
        "command": ["vllm", "serve"],
        "args": ["m"],
        "env": [{"name": "OWN", "value": "$(HOST)"}, {"name": "GONE", "value": "1"}],
    }
    declared = {"manager": "kubernetes", "unit": "deployment/llm"}
    found = make_manager(declared, State.make(tmp_path / "state"))
    described = {"own": {"template": {"spec": {"containers": [container]}}}, "seen": {}}
    was = found.command(described)
    edit = {"words": [0, 1, 2], "env": {"NEW": "$(SECRET)", "GONE": None}, "image": None}

    own = found.prepared(described, found.edited(was, edit), "a-1")

    env = own["template"]["spec"]["containers"][0]["env"]
    assert [{"name": "OWN", "value": "$(HOST)"}, {"name": "NEW", "value": "$$(SECRET)"}] == env
    assert json.loads(json.dumps(own))


def test_compose_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new variable and a new image are literal in the override."""
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    declared = {"manager": "compose", "file": str(tmp_path / "compose.yaml"), "unit": "llm"}
    found = make_manager(declared, State.make(tmp_path / "state"))
    service = {"image": "v:1", "entrypoint": ["vllm", "serve"], "command": ["m"], "environment": {"B": "$${X}"}}
    described = {
        "own": {"file": str(tmp_path / "compose.override.yaml"), "content": None},
        "seen": {"service": service},
    }
    was = found.command(described)
    edit = {"words": [0, 1, 2, "$A"], "env": {"NEW": "${SECRET}"}, "image": "v:$TAG"}

    own = found.prepared(described, found.edited(was, edit), "a-1")

    written = json.loads(own["content"].split("\n", 1)[1])["services"]["llm"]
    assert {"B": "${X}"} == was.env
    assert {"NEW": "$${SECRET}"} == written["environment"]
    assert ["m", "$$A"] == written["command"]
    assert "v:$$TAG" == written["image"]


def test_command_file(tmp_path: Path) -> None:
    """A word that is no line of its own is refused."""
    file = tmp_path / "command"
    file.write_text("/opt/vllm\nserve\nm\n")
    declared = {"manager": "command", "start": ["true"], "stop": ["true"], "command_file": str(file)}
    found = make_manager(declared, State.make(tmp_path / "state"))

    with pytest.raises(ScriptError, match="empty"):
        prepared(found, ["--say", ""], {})
