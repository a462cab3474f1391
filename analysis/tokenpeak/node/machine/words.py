"""Words from outside: what one may be that comes by a request, an inventory, a spec, a node's answer or a file.

They are checked once, where they come in: no hidden character, a bounded length, text that has bytes. A word that got
through may then stand in a line of any file, command or message without becoming two lines there. What is wrong is said
without the word, which may be a secret.
"""

from __future__ import annotations

import math
import re
from typing import Any, Iterable, Iterator, Sequence

HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""C0 and C1 controls, line ends among them; what reorders, joins, separates or hides text; halves of surrogate pairs,
which JSON may hold and which have no bytes."""
VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""A name of an environment variable."""
LINES = "\t\n"
"""Hidden characters that a text of several lines may hold."""
WORD_BYTES = 131_071
"""Of one argument or variable: Linux takes 131072 with the zero at its end."""
NAME_CHARACTERS = 500
PATH_CHARACTERS = 4095
TREE_VALUES = 50_000
TREE_DEPTH = 32
"""Of an object that holds words, such as a node's declaration."""

_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CI_COMMAND = re.compile(r"(?m)^[^\S\n]*:(?=:)|#(?=#(?:\[|vso\[|teamcity\[))")
"""Commands that GitHub, Azure and TeamCity obey in a job's output: at the beginning of a line, or in it."""


def wrong_word(value: Any, most_bytes: int = WORD_BYTES, allowed: str = "") -> str | None:
    """The problem with a word (an argument, a value), in words that follow its name; None when nothing is.

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
    """The problem with a name (of a trial, unit, model, host): a word that is neither empty nor long."""
    wrong = wrong_word(value)
    if wrong is None and not 0 < len(value) <= most_characters:
        return f"has {len(value)} characters, and 1 to {most_characters} are possible"
    return wrong


def wrong_place(value: str) -> str | None:
    """The problem with a path or a name that becomes part of one, in words that follow it; None when nothing is."""
    return "leads out of its folder by `..`: name the place itself" if ".." in value.split("/") else None


def wrong_tree(value: Any, most_bytes: int = WORD_BYTES, allowed: str = "") -> str | None:
    """The problem of the first wrong word, key or number of a JSON value, after its place; None when nothing is."""
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


MASK = "[secret]"
SECRET = re.compile(r"(key|token|[-_]pat)$|secret|passw|passphrase|credential|api[-_]?k", re.IGNORECASE)
"""Names of flags and variables that are not shown, nor their values; `--api-k` is what argparse takes for a key's."""
_NAME = r"(?:api[-_]?k|key|token|[-_]pat|secret|passw(?:or)?d|passphrase|credentials?)[\"']?"
_VALUE = r"""[^\s"',;}]+"""
_ASSIGNED = re.compile(rf"""({_NAME}\s*[=:]\s*["']?){_VALUE}""", re.IGNORECASE)
_AFTER_NAME = re.compile(rf"""{_NAME}\s+["']?({_VALUE})""", re.IGNORECASE)
_FLAG_CHARACTERS = 256
"""How far before the end of its name a flag's dash is looked for."""
_USER_OF_URL = re.compile(r"(?<=[a-z0-9+.-])://[^\s/@]+@", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:hf_|sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[a-z]-|nvapi-|AKIA)[\w-]{8,}|(?<=Bearer )\S+", re.IGNORECASE
)
MOST_VALUE, MOST_COMMAND, MOST_OUTPUT = 80, 300, 500
"""Characters that are shown."""
_WINDOW = 16 << 10
"""Of a longer text, what is looked through."""
_PARTED = 3
"""As many words may part the end of a secret from its name."""
_CUT_OFF = 32
"""More than the beginning of a token that is too short to be known for one."""


def shown_value(given: Any, most: int = MOST_VALUE) -> str:
    """A value in quotes, or its number; of a list or an object, which may hold anything, how many entries it has."""
    if isinstance(given, (list, tuple, set, frozenset)):
        return f"a list of {len(given)}"
    if isinstance(given, dict):
        return f"an object of {len(given)}"
    if not isinstance(given, str):
        return _cut(repr(given), most)
    return "'" + _cut(_one_line(given), most) + "'"


def shown_command(argv: Iterable[str], most: int = MOST_COMMAND) -> str:
    """A command line in backquotes."""
    return f"`{_cut(' '.join(map(_one_line, hidden_words([str(word) for word in argv]))), most)}`"


def shown_output(text: str, most: int = MOST_OUTPUT) -> str:
    """The end of what a program or a server printed, in one line; `no output` where it printed nothing."""
    line = _one_line(_last(text))
    return f"…{line[-most:]}" if len(line) > most else line or "no output"


def shown_answer(text: str, most: int = MOST_COMMAND) -> str:
    """The beginning of what a server answered, in one line."""
    return _cut(_one_line(text), most) or "nothing"


def hidden_words(argv: Sequence[str]) -> list[str]:
    """The words of a command line in their places, less what may be secret."""
    hidden: list[str] = []
    is_secret = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if word.startswith("-"):
            is_secret = bool(SECRET.search(name))
            hidden.append(f"{name}={MASK}" if is_secret and equals else _masked(word))
        elif is_secret:
            hidden.append(MASK)
        else:
            hidden.append(f"{name}={MASK}" if equals and SECRET.search(name) else _masked(word))
    return hidden


def hidden_env(env: dict[str, str]) -> dict[str, str]:
    """The variables, less values that may be secret."""
    return {name: MASK if SECRET.search(name) else _masked(text) for name, text in sorted(env.items())}


def without_secrets(argv: Sequence[str]) -> list[str]:
    """The words of a command line less flags that may hold secrets and their values; of the rest as `hidden_words`."""
    shown: list[str] = []
    is_secret = False
    for word in argv:
        if word.startswith("-"):
            is_secret = bool(SECRET.search(word.split("=")[0]))
        if not is_secret:
            shown.append(word)
    return hidden_words(shown)


def _masked(text: str) -> str:
    """The text less what looks like a secret wherever it stands.

    Each pattern begins at what it looks for, so that the work is that of the text's length, not of its square.
    """
    text = _without_options(_ASSIGNED.sub(rf"\1{MASK}", text))
    text = _USER_OF_URL.sub(f"://{MASK}@", text)
    return _TOKEN.sub(MASK, text)


def _without_options(text: str) -> str:
    """The text less the values that follow flags whose names say that they are secret."""
    parts: list[str] = []
    kept = at = 0
    while match := _AFTER_NAME.search(text, at):
        begin = match.start(1)
        dash = text.rfind("-", max(0, match.start() - _FLAG_CHARACTERS), match.start())
        if dash >= 0 and re.fullmatch(r"\w*", text[dash + 1 : match.start()]):
            parts += [text[kept:begin], MASK]
            kept = match.end()
        at = begin
    return "".join([*parts, text[kept:]])


def _one_line(text: str) -> str:
    """The beginning of a text as one line, hidden characters written out.

    It is cut before it is looked through, far beyond what anybody shows of it: a secret that the cut goes through is
    still seen to be one by its beginning, and its last characters are left out, by which no token would be known.
    """
    part = _masked_part(text) if len(text) > _WINDOW else _masked(text)
    return visible(" ".join(part.split()))


def _masked_part(text: str) -> str:
    part = _masked(text[:_WINDOW])
    # A user of a URL whose `@` lies beyond.
    part = re.sub(r"://[^\s/@]*$", f"://{MASK}", part)
    return f"{part[:-_CUT_OFF]}…"


def _last(text: str) -> str:
    """The end of a text: of one that is cut, less its first words, which may be a secret without its name."""
    if len(text) <= _WINDOW:
        return text
    words = text[-_WINDOW:].split(None, _PARTED)
    return f"… {words[-1]}" if len(words) > _PARTED else "…"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
