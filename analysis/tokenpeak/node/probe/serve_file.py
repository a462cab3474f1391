"""File of settings that an engine was started with: `vllm serve --config FILE`, as the words that it stands for.

The engine reads a mapping of flags to words, numbers, truths or lists of these, and puts them before its own words, so
that those count. What else YAML has (nesting, anchors, text over several lines) is not read here.
"""

from __future__ import annotations

import re
from pathlib import Path

LARGEST_BYTES = 65536
_ENTRY = re.compile(r"(?P<key>[A-Za-z][\w.-]*)\s*:(?:\s+(?P<value>.*))?")
_ITEM = re.compile(r"\s*-\s+(?P<value>.*)")


def with_settings(words: list[str], process: int) -> list[str]:
    """The words of an engine's command line with those of its file in place of `--config FILE`.

    Unchanged where the file cannot be read or holds more than that. `process` is the engine's, whose folders count.
    """
    place, width, name = _named(words)
    if name is None:
        return words
    own = Path(f"/proc/{process}/root" + name) if name.startswith("/") else Path(f"/proc/{process}/cwd") / name
    try:
        if own.stat().st_size > LARGEST_BYTES:
            return words
        settings = read_settings(own.read_text())
    except (OSError, UnicodeDecodeError):
        return words
    return words if settings is None else [*settings, *words[:place], *words[place + width :]]


def _named(words: list[str]) -> tuple[int, int, str | None]:
    """Where the file is named, in how many words, and its name."""
    for place, word in enumerate(words):
        if word == "--config" and place + 1 < len(words):
            return place, 2, words[place + 1]
        if word.startswith("--config="):
            return place, 1, word.partition("=")[2]
    return 0, 0, None


def read_settings(text: str) -> list[str] | None:
    """A file of settings as words of a command line; None for one that holds more than a flat mapping."""
    words: list[str] = []
    lists = False
    for line in text.splitlines():
        bare = _without_comment(line).rstrip()
        if not bare.strip() or bare == "---":
            continue
        item = _ITEM.fullmatch(bare)
        if item is not None and lists:
            words.append(_scalar(item["value"]))
            continue
        entry = _ENTRY.fullmatch(bare)
        if entry is None:
            return None
        flag, value = "--" + entry["key"].replace("_", "-"), (entry["value"] or "").strip()
        lists = not value
        if value[:1] in ("&", "*", "|", ">", "!"):
            return None
        if value.casefold() in ("true", "yes", "on"):
            words.append(flag)
        elif value.casefold() in ("false", "no", "off", "null", "~"):
            continue
        elif value.startswith("[") and value.endswith("]"):
            words += [flag, *(_scalar(each) for each in value[1:-1].split(",") if each.strip())]
        else:
            words += [flag, _scalar(value)] if value else [flag]
    return words


def _without_comment(line: str) -> str:
    """A line less what stands behind a `#` that is in no quotes."""
    quote = ""
    for place, letter in enumerate(line):
        if letter in ("'", '"') and quote in ("", letter):
            quote = "" if quote else letter
        elif letter == "#" and not quote and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


def _scalar(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in ("'", '"') else text
