"""`tokenpeak` as typed, in this process: its status and what it prints on standard output and standard error.

What it starts prints to the test's own output. How the program itself starts is for tests that start it.
"""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from tokenpeak.cli import main


def typed(*words: str, **environment: str | None) -> "subprocess.CompletedProcess[str]":
    """How `tokenpeak WORDS` ends; a variable that is None is not set."""
    status: int | str | None = 0
    with pytest.MonkeyPatch.context() as patch, CliRunner().isolation(env=environment) as (output, errors, _):
        patch.setattr(sys, "argv", ["tokenpeak", *words])
        # As main sets it, and for the command alone.
        patch.setenv("PYTHONSAFEPATH", "1")
        try:
            main()
        except SystemExit as end:
            status = end.code
    assert status is None or isinstance(status, int)
    said = (stream.getvalue().decode() for stream in (output, errors))
    return subprocess.CompletedProcess(words, status or 0, *said)
