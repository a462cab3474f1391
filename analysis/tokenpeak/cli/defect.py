"""Defect of TokenPeak's own: an error that no command expected, as one line and a file that can be sent."""

import platform
import shlex
import sys
import traceback
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import ExitStatus
from tokenpeak.files import write_atomically
from tokenpeak.sensitive import mask
from tokenpeak.terminal import echo, echo_text

FOLDER = "defects"
MOST_CHARACTERS = 400


def report_defect(error: BaseException) -> ExitStatus:
    """Write the error with its traceback into the state folder, name both in a line, and return the exit status.

    Paths, addresses, names and secrets in the file are masked, as in an archive that leaves. Where nothing can be
    written, the file's text is printed instead.
    """
    text = _text(error)
    what = f"{type(error).__name__}: {error}".strip().rstrip(":")[:MOST_CHARACTERS]
    try:
        file = _written(text)
    except OSError as refused:
        echo_text(text, err=True)
        echo(f"tokenpeak: a defect of TokenPeak's own, {what}. Send the lines above ({refused}).", err=True)
    else:
        echo(f"tokenpeak: a defect of TokenPeak's own, {what}. Send {file}; names and secrets are masked.", err=True)
    return ExitStatus.DEFECT


def _text(error: BaseException) -> str:
    facts = (
        f"tokenpeak {version('tokenpeak')}, Python {platform.python_version()}, {platform.platform()}",
        f"tokenpeak {shlex.join(sys.argv[1:])}",
    )
    trace = "".join(traceback.format_exception(error)).replace(f"{paths.ROOT}/", "")
    return mask("\n".join([*facts, "", trace]), lambda kind, _: f"<{kind}>")


def _written(text: str) -> Path:
    folder = paths.state_dir() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.txt"
    write_atomically(file, text, mode=0o600)
    return file
