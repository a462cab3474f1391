"""Which phase the node is in, as one process writes it and another reads it."""

import json
from pathlib import Path

import pytest

from tokenpeak.node.guard import phases
from tokenpeak.node.machine.state import State


@pytest.fixture
def state(tmp_path: Path) -> State:
    """A state folder in which nothing has happened yet."""
    return State.make(tmp_path / "state")


def test_the_phase_begun_last_is_what_the_node_is_in(state: State) -> None:
    """A phase that has ended stays until the next one begins."""
    marks = phases.Phases(state)

    assert phases.now(state) is None
    with marks.span("arming"):
        marks.mark("production_stop")
    assert "production_stop" == phases.now(state)
    assert {"name": "production_stop"} == json.loads(state.path(phases.FILE).read_text())


@pytest.mark.parametrize("content", ["engine_start", '{"name": "dancing"}', "[]", ""])
def test_mark_that_is_no_message_is_no_phase(state: State, content: str) -> None:
    """What this version does not know is not handed on."""
    state.path(phases.FILE).write_text(content)

    assert phases.now(state) is None


def test_full_or_broken_disk_keeps_nobody_from_going_on(state: State) -> None:
    """A mark that cannot be written is left out; the phase is timed all the same."""
    state.path(phases.FILE).mkdir()
    marks = phases.Phases(state)

    with marks.span("engine_stop"):
        pass

    assert ["engine_stop"] == [span.name for span in marks.spans]
