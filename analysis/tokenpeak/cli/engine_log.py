"""Engine's log of `tokenpeak explain --log`: read from a file or standard input, and why the engine failed by it."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tokenpeak.errors import InputError
from tokenpeak.vllm.explanation import explain_log
from tokenpeak.vllm.startup_log import LOG_LIMIT_BYTES

_STDIN = "-"
_TEXT = "Name the text that the engine wrote, such as the output of `docker logs`."


def explained_log(path: Path) -> Iterator[str]:
    """The lines that say why the engine of a log failed, or that it did not; InputError for what is no log."""
    found = explain_log(_read(path))
    if found is None:
        yield f"{_name(path)} shows no failure: the engine started."
        return
    yield f"class: {found.cause}"
    yield f"cause: {found.says}"
    yield f"advice: {found.advice or 'none'}"
    for line in found.evidence:
        yield f"log: {line}"


def _name(path: Path) -> str:
    return "Standard input" if str(path) == _STDIN else str(path)


def _read(path: Path) -> str:
    """The text of a log; of one longer than LOG_LIMIT_BYTES its end, as a failure stands there."""
    name = _name(path)
    try:
        raw = _end_of(sys.stdin.buffer) if str(path) == _STDIN else _end_of_file(path)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}. {_TEXT}") from error
    text = raw.decode(errors="replace")
    if "\0" in text or text.count("\ufffd") > len(text) // 10:
        raise InputError(f"{name} is no text. {_TEXT}")
    if not text.strip():
        raise InputError(f"{name} is empty. {_TEXT}")
    return text


def _end_of_file(path: Path) -> bytes:
    with path.open("rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.seek(-min(LOG_LIMIT_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return _end_of(file)


def _end_of(file: BinaryIO) -> bytes:
    """What is left of a stream, its last LOG_LIMIT_BYTES where it is longer; no more than twice that is held."""
    end = b""
    while chunk := file.read(LOG_LIMIT_BYTES):
        end = (end + chunk)[-LOG_LIMIT_BYTES:]
    return end
