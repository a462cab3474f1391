"""Frame of what a command on a node prints for its controller: one JSON object, on a line of its own.

A login shell may print as well: a banner, the message of the day, a tool's greeting, with or without the end of its
line. So a command begins with the end of a line, and who reads takes the last line that is an object with the key that
each answer has. Ansible keeps that, in an answer of its own.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Optional

Read = Callable[[str], Optional[Dict[str, Any]]]

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
