"""Somebody who may not know production's key makes the node refuse something, and reads the refusal.

Refusals quoted production's command as it stands, `--api-key=…` with it.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine.command import program_words
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import change
from tokenpeak.node.production.manager import Manager
from tokenpeak.node.production.managers import make_manager

SECRET = "s3cret-value"
COMMAND = ["/opt/vllm", "serve", "m", f"--api-key={SECRET}", "--hf-token", SECRET]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.make(tmp_path / "state")


def text_of(refused: pytest.ExceptionInfo[ScriptError]) -> str:
    """The refusal, which is about that command."""
    assert "[secret]" in refused.value.text
    assert "/opt/vllm" in refused.value.text or "printf" in refused.value.text
    return refused.value.text


def test_command_that_supervisord_cannot_hold(state: State, tmp_path: Path) -> None:
    """The section cannot hold a word of the apply."""
    file = tmp_path / "supervisord.conf"
    file.write_text(f"[program:llm]\ncommand={' '.join(COMMAND)}\nenvironment=VLLM_API_KEY={SECRET}\n")
    declared = {"manager": "supervisord", "unit": "llm", "config": str(file)}
    found = make_manager(declared, state)
    was = found.describe()
    edit: dict[str, Any] = {"words": [0, 1, 2, 3, 4, 5, "a ;b"], "env": {}, "image": None}

    with pytest.raises(ScriptError) as refused:
        found.prepared(was, found.edited(found.command(was), edit), "a-1")

    assert SECRET not in refused.value.text


def test_command_that_the_manager_would_not_start() -> None:
    """What would be started is not what was shown."""
    apply = {"words": [*COMMAND, "--say", "x"], "env": {}, "env_gone": []}
    command = change.Command(tuple(COMMAND), {}, 2)

    with pytest.raises(ScriptError) as refused:
        change._require_same(apply, command, COMMAND)

    assert SECRET not in text_of(refused)


def test_command_whose_arguments_are_not_seen() -> None:
    """A command without `serve`."""
    with pytest.raises(ScriptError) as refused:
        program_words(["/opt/vllm", f"--api-key={SECRET}", "--hf-token", SECRET])

    assert SECRET not in text_of(refused)


def test_unit_that_systemd_reads_otherwise(state: State) -> None:
    """A unit whose quotes are not understood, and one with a prefix."""
    found = make_manager({"manager": "systemd", "unit": "llm.service"}, state)
    line = " ".join(COMMAND)
    for lines, started in (([line], f"argv[]={line} --more ; ignore_errors=no"), ([f"@{line}"], "")):
        seen = {"exec_start": lines, "started": started, "environment": "", "unset": ""}
        with pytest.raises(ScriptError) as refused:
            found.command({"own": {"env": {}}, "seen": seen})
        assert SECRET not in text_of(refused)


def test_command_of_a_manager_that_fails(state: State) -> None:
    """The manager's own command, which may have production's in it, and what it printed."""
    script = f"import sys; sys.exit('podman: bad argument --api-key {SECRET}')"
    words = [sys.executable, "-S", "-c", script, "/opt/vllm", f"--api-key={SECRET}"]

    with pytest.raises(ScriptError) as refused:
        Manager({}, state).do(words)

    assert SECRET not in text_of(refused)


def test_declaration_that_is_wrong(state: State) -> None:
    """A process that is none, and arguments that are no list."""
    for process in ([SECRET], {"argv": f"vllm serve m --api-key {SECRET}"}):
        declared = {"manager": "command", "process": process, "url": "http://127.0.0.1:9"}
        with pytest.raises(ScriptError) as refused:
            make_manager(declared, state).start({})
        assert SECRET not in refused.value.text
