"""What a sweep says, and to whom."""

import contextlib
import os
import sys
from collections.abc import Iterator

import pytest

from archive_factory import sweep_spec, trial_record
from tokenpeak.drive.progress import Progress
from tokenpeak.records import Failure


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
        progress = Progress(terminal=terminal)
        progress.expect(1, ("one",), 1)
        with progress.shown():
            progress.trial_begins("one", "0001-a", "max_num_seqs=8", "first")
            progress.phase("one", "node | launch")
            progress.say("one is done")


def test_interrupted_trial_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """What interrupted a trial stands behind it, without the word itself a second time."""
    failure = Failure(phase="launch", cause="interrupted", message="Production is unwell.")
    trial, _ = trial_record(sweep_spec())
    progress = Progress(terminal=False)
    progress.trial_ended(trial.model_copy(update={"status": "interrupted", "failure": failure}), "", "")

    assert capsys.readouterr().out.endswith(": interrupted: Production is unwell.\n")


def test_line_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A line stands for itself, with the time of day where it may end up in a file."""
    Progress(terminal=False).say("one is done")

    assert capsys.readouterr().out.endswith(" one is done\n")
