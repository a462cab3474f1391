"""The deployer keeps a hidden word of production's command at another place, where it is shown.

An edit names words that stay by their places. `--served-model-name` before the place of an API key had the key shown as
the name of the model, in the answer and by production itself. What may be secret stays behind its own flag.
"""

from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine.command import Command, text
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.manager import Manager
from tokenpeak.node.production.managers import make_manager

SECRET = "s3cret-value"
WORDS = [
    *("env", f"HF_TOKEN={SECRET}", "vllm", "serve", "m"),
    *("--port", "8000", "--api-key", SECRET, f"{SECRET}-2", f"--hf-token={SECRET}"),
    *("--override", f'{{"api_key": "{SECRET}"}}', "--x", "${MY_TOKEN}", "--y", "${HOST}"),
]
NAME = "--served-model-name"
PROGRAM = [0, 1, 2, 3, 4]


@pytest.fixture
def found(tmp_path: Path) -> Manager:
    """Production with secrets in its command."""
    declared = {"manager": "command", "process": {"argv": WORDS}}
    return make_manager(declared, State.make(tmp_path / "state"))


def edited(found: Manager, words: list[Any]) -> Command:
    return found.edited(found.command(found.describe()), {"words": words, "env": {}, "image": None})


@pytest.mark.parametrize(
    "words",
    [
        [*PROGRAM, NAME, 8],
        [*PROGRAM, 7, 8, NAME, 9],
        [*PROGRAM, 7, 9],
        [*PROGRAM, 8],
        [*PROGRAM, NAME, 1],
        [2, 3, 4, NAME, 1],
        [8, 3, 4],
        [*PROGRAM, NAME, 12],
        [*PROGRAM, NAME, 14],
        [*PROGRAM, "--", 10],
        [*PROGRAM, "--api-key", 8],
        [*PROGRAM, 5, 8],
    ],
)
def test_behind_another_flag(found: Manager, words: list[Any]) -> None:
    """Refused, whatever it is put behind; the refusal does not repeat it."""
    with pytest.raises(ScriptError, match="may be secret, and stays behind") as refused:
        edited(found, words)

    assert SECRET not in refused.value.text


@pytest.mark.parametrize(
    "words",
    [
        [*range(len(WORDS))],
        [*PROGRAM, 7, 8, 9, "--port", "1", 11, 12, 10, 13, 14],
        [*PROGRAM, 10, 7, 8],
        [2, 3, 4, 5, 6, 7, 8],
        [*PROGRAM, NAME, 16, 5, 6],
        [*PROGRAM, 7, 8, NAME, "other"],
    ],
)
def test_behind_its_own(found: Manager, words: list[Any]) -> None:
    """Flags with their values come in any order, new ones between them, and nothing secret is shown."""
    command = edited(found, words)

    assert SECRET not in text("here", command, found.shown_words(command))
