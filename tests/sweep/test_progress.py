"""What a sweep says, and to whom."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console

from tokenpeak.search.remaining import TrialCount
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.progress import ProgressDisplay


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """A standard output whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    before, sys.stdout = sys.stdout, os.fdopen(writer, "w")
    try:
        yield
    finally:
        closed, sys.stdout = sys.stdout, before
        with contextlib.suppress(BrokenPipeError):
            closed.close()


@pytest.mark.parametrize("terminal", [True, False])
def test_nobody_reads_any_more(terminal: bool) -> None:
    """A terminal that hung up, or a pipe that closed, ends neither the worker that says something nor the table."""
    with unread():
        progress = ProgressDisplay(terminal=terminal)
        progress.expect(TrialCount(remaining=1), ("one",), 1)
        with progress.shown():
            progress.trial_begins("one", "0001-a", "max_num_seqs=8", "first")
            progress.phase(Event(kind="started", node="one", step="launch"))
            progress.say("one is done")


def test_each_node_has_a_line_of_a_narrow_terminal() -> None:
    """How far the sweep is stands first, then a line for each node, those at work first."""
    progress = ProgressDisplay(terminal=True)
    progress.expect(TrialCount(remaining=40), ("gpu-node-001", "gpu-node-002"), 1)
    progress.trial_begins("gpu-node-002", "0012-abcdef12", "max_num_seqs=64,max_num_batched_tokens=2048", "first")
    progress.phase(Event(kind="started", node="gpu-node-002", step="launch"))
    screen = Console(width=80, file=io.StringIO())
    with screen.capture() as captured:
        screen.print(progress.table())

    standing, heading, *nodes = captured.get().splitlines()
    assert "0 of 40 trials" == standing.strip()
    assert heading.startswith("node")
    assert [("gpu-node-002", "0012"), ("gpu-node-001", "waiting")] == [tuple(line.split()[:2]) for line in nodes]
