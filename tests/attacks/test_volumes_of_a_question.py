"""An image declares a volume, and its program neither ends nor says its flags: each probe left a volume on the disk.

What a question was cut short in goes with its volumes, and an image that has not said its flags is not asked again.
"""

from pathlib import Path

import pytest

from tokenpeak.node.engine import images, installed
from tokenpeak.node.machine import process
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.state import State

BUILD = {"image": "hub/vllm:1", "runtime": "docker", "command": ["vllm", "serve"]}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the runtime is to do; it has the image."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(images, "found_image", lambda _: {"Id": "sha256:a"})
    monkeypatch.setattr(Runtime, "run", lambda _, *words, **__: asked.append(words) or process.Ran(124, "", ""))
    return asked


def test_question_that_is_cut_short(commands: list[tuple[str, ...]], tmp_path: Path) -> None:
    """Its container is removed with the volumes that have no name."""
    images.ask(State.make(tmp_path / "state"), BUILD, {}, ["vllm", "--version"], 1.0)

    assert ("rm", "--force", "--volumes") == commands[-1][:3]


@pytest.mark.parametrize(("status", "questions"), [(1, 1), (124, 1), (images.NOT_RUN, 2)])
def test_help_that_fails(
    status: int, questions: int, commands: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is asked once; it is again only where its runtime did not run it."""
    monkeypatch.setattr(
        Runtime, "run", lambda _, *words, **__: commands.append(words) or process.Ran(status, "  --flag", "")
    )
    state = State.make(tmp_path / "state")

    for _ in range(2):
        assert [] == installed.engine_help({}, BUILD, "0.24.0", state)

    assert questions == sum(words[0] == "run" for words in commands)
