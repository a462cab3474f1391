"""Words from outside: what one may be that comes by a request, an inventory, a spec, a node's answer or a file.

They are checked once, where they come in: no hidden character, a bounded length, text that has bytes. A word that got
through may then stand in a line of any file, command or message without becoming two lines there. What is wrong is said
without the word, which may be a secret.
"""

from __future__ import annotations

import math
import re
from typing import Any, Iterator

HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""C0 and C1 controls, line ends among them; what reorders, joins, separates or hides text; halves of surrogate pairs,
which JSON may hold and which have no bytes."""
LINES = "\t\n"
"""What a text of several lines may hold besides."""
WORD_BYTES = 131_071
"""Of one argument or variable: Linux takes 131072 with the zero at its end."""
NAME_CHARACTERS = 500
PATH_CHARACTERS = 4095
TREE_VALUES = 50_000
TREE_DEPTH = 32
"""Of an object that holds words, such as a node's declaration."""

_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CI_COMMAND = re.compile(r"(?m)^[^\S\n]*:(?=:)|#(?=#(?:\[|vso\[|teamcity\[))")
"""What GitHub, Azure and TeamCity obey in what a job prints: at the beginning of a line, or in it."""


def wrong_word(value: Any, most_bytes: int = WORD_BYTES, allowed: str = "") -> str | None:
    """What is wrong with a word (an argument, a value), in words that follow its name; None when nothing is.

    `allowed` are hidden characters that it may hold all the same: LINES for a text of several lines.
    """
    if not isinstance(value, str):
        return f"is of the type {type(value).__name__}, not a text"
    for match in HIDDEN.finditer(value):
        if match[0] not in allowed:
            return f"has the hidden character U+{ord(match[0]):04X} at place {match.start() + 1}: take it out"
    length = len(value.encode())
    return None if length <= most_bytes else f"has {length} bytes, and at most {most_bytes} are possible"


def wrong_name(value: Any, most_characters: int = NAME_CHARACTERS) -> str | None:
    """What is wrong with a name (of a trial, unit, model, host): a word that is neither empty nor long."""
    wrong = wrong_word(value)
    if wrong is None and not 0 < len(value) <= most_characters:
        return f"has {len(value)} characters, and 1 to {most_characters} are possible"
    return wrong


def wrong_place(value: str) -> str | None:
    """What is wrong with a path or a name that becomes part of one, in words that follow it; None when nothing is."""
    return "leads out of its folder by `..`: name the place itself" if ".." in value.split("/") else None


def wrong_tree(value: Any, most_bytes: int = WORD_BYTES, allowed: str = "") -> str | None:
    """What is wrong with the first wrong word, key or number of a JSON value, after its place; None when nothing is."""
    for number, (place, depth, one) in enumerate(_values(value)):
        if depth > TREE_DEPTH:
            return f"is nested more than {TREE_DEPTH} deep"
        if number > TREE_VALUES:
            return f"holds more than {TREE_VALUES} values"
        if isinstance(one, float) and not math.isfinite(one):
            return f"is no number{_at(place)}"
        wrong = wrong_word(one, most_bytes, allowed) if isinstance(one, str) else None
        if wrong is not None:
            return f"{wrong}{_at(place)}"
    return None


def visible(text: str, kept: str = "") -> str:
    """The text with every hidden character written out by its code, save those in `kept`."""
    return HIDDEN.sub(lambda match: match[0] if match[0] in kept else _code(ord(match[0])), text)


def one_line(text: str) -> str:
    """Foreign words as a part of one line: they end no line, hide nothing, and are no command of a CI service.

    A line of their own might be another node's, or `::add-mask::` to the service that reads what is printed.
    """
    parts = [part.strip() for part in _LINE_END.split(text)]
    indent = text[: len(text) - len(text.lstrip(" "))]
    return no_command(indent + visible(" | ".join(filter(None, parts)).replace("\t", " ")))


def no_command(text: str) -> str:
    """The text with no line that a CI service obeys."""
    return _CI_COMMAND.sub(r"\g<0> ", text)


def _values(value: Any) -> Iterator[tuple[str, int, Any]]:
    """Each value of a tree with its place and depth, keys included; without recursion, which its depth could exhaust.

    It is read as it is asked for, so that whoever bounds the number bounds the work.
    """
    pending: list[Iterator[tuple[str, int, Any]]] = [iter([("", 0, value)])]
    while pending:
        following = next(pending[-1], None)
        if following is None:
            pending.pop()
            continue
        yield following
        place, depth, one = following
        if isinstance(one, (dict, list, tuple)):
            pending.append(_entries(place, depth + 1, one))


def _entries(place: str, depth: int, value: Any) -> Iterator[tuple[str, int, Any]]:
    if not isinstance(value, dict):
        yield from ((f"{place}[{index}]", depth, one) for index, one in enumerate(value))
        return
    for key, one in value.items():
        # A key that is no word is not repeated.
        yield (f"{place}.(key)", depth, key)
        yield (f"{place}.{visible(str(key))[:80]}", depth, one)


def _at(place: str) -> str:
    return f" (at {place.lstrip('.')[-200:]})" if place else ""


def _code(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
