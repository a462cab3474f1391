"""Words fit to be shown: commands, values and outputs as an error, a log or an answer may hold them.

What may be a secret is hidden, hidden characters are written out, line ends are spaces, and what is long is cut. No
other module of the node script quotes a word that came from outside.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Sequence

from tokenpeak.node import words

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
    kept: list[str] = []
    is_secret = False
    for word in argv:
        if word.startswith("-"):
            is_secret = bool(SECRET.search(word.split("=")[0]))
        if not is_secret:
            kept.append(word)
    return hidden_words(kept)


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
    return words.visible(" ".join(part.split()))


def _masked_part(text: str) -> str:
    part = _masked(text[:_WINDOW])
    # A user of a URL whose `@` lies beyond.
    part = re.sub(r"://[^\s/@]*$", f"://{MASK}", part)
    return f"{part[:-_CUT_OFF]}…"


def _last(text: str) -> str:
    """The end of a text: of one that is cut, less its first words, which may be a secret without its name."""
    if len(text) <= _WINDOW:
        return text
    found = text[-_WINDOW:].split(None, _PARTED)
    return f"… {found[-1]}" if len(found) > _PARTED else "…"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
