"""Frame of a request that a command on a node reads and of the answer that it prints: one JSON object each.

A login shell may print as well: a banner, the message of the day, a tool's greeting, with or without the end of its
line. So a command begins with the end of a line, and who reads takes the last line that is an object with the key that
each answer has. Ansible keeps that, in an answer of its own.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_output

Read = Callable[[str], Optional[Dict[str, Any]]]

REQUEST_BYTES = 1 << 20
REQUEST_TIMEOUT_S = 30.0
KEY = "script"
"""Each answer names the script that gave it."""
MOST_SMALL = 1 << 16
"""Characters: the values in JSON take up to a hundred times the memory of their text."""
_MOST_LINES = 1000
"""Of what is printed after the answer."""


def framed(answer: dict[str, Any]) -> str:
    """The answer as it is printed."""
    return f"\n{json.dumps(answer, default=vars)}\n"


def as_small_object(line: str) -> dict[str, Any] | None:
    """The JSON object on a line; None where there is none, or one that is larger than what says little."""
    if len(line) > MOST_SMALL:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def unframed(printed: str, key: str, read: Read) -> dict[str, Any] | None:
    """The answer in all that was printed, each line read by `read`; None where there is none."""
    end = len(printed)
    for _ in range(_MOST_LINES):
        begin = printed.rfind("\n", 0, end) + 1
        line = printed[begin:end].strip()
        if line.startswith("{") and line.endswith("}"):
            answer = read(line)
            if answer is not None and key in answer:
                return answer
        if begin == 0:
            return None
        end = begin - 1
    return None


def read(source: str) -> Json:
    """The JSON object in a file, or on standard input for `-`; an empty one where a terminal or nothing is there."""
    raw = _standard_input() if source == "-" else _file(Path(source))
    if len(raw) > REQUEST_BYTES:
        raise ScriptError("request", f"The request has more than {REQUEST_BYTES} bytes.")
    return parsed(raw) if raw.strip() else {}


def parsed(raw: bytes | str) -> Json:
    """The JSON object in a text; raises ScriptError for any other text."""
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ScriptError("request", f"The request is not JSON: {shown_output(str(error))}.") from error
    if not isinstance(given, dict):
        raise ScriptError("request", "The request must be a JSON object.")
    return given


def _file(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(REQUEST_BYTES + 1)


def _standard_input() -> bytes:
    descriptor = sys.stdin.fileno()
    if os.isatty(descriptor):
        return b""
    raw = b""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while len(raw) <= REQUEST_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise ScriptError(
                "request",
                f"No whole request came on standard input within {REQUEST_TIMEOUT_S:g} s: close it, or give "
                "`< /dev/null` for a command without one.",
            )
        chunk = os.read(descriptor, REQUEST_BYTES)
        if not chunk:
            break
        raw += chunk
    return raw
