"""Engine's command of production: its words and environment, edited word by word.

An edit names a word that stays by its place, so that whoever makes it need not know it: keys stay on the node, and
references to variables stay as their manager reads them.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from typing import Callable, NamedTuple, Sequence

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import SECRET, hidden_env, hidden_words, one_line, shown_command

_START_WORDS = ("serve", "api_server")


class Command(NamedTuple):
    """The command of production. `words` are as its manager keeps them, the first `program` of them the program.

    `env` is as the engine gets it.
    """

    words: tuple[str, ...]
    env: dict[str, str]
    program: int
    image: str | None = None


def program_words(words: Sequence[str]) -> int:
    """How many words the program has, up to `serve`; raises ScriptError where the engine's arguments are not seen."""
    for place, word in enumerate(words):
        if word == "serve" or word.endswith(_START_WORDS[1]):
            return place + 1
    raise ScriptError(
        "definition",
        f"Production is started by {shown_command(words)}, where vLLM's own arguments are not seen: let its "
        "definition run `vllm serve MODEL …` itself.",
    )


def edited_words(was: Command, edit: Json, literal: Callable[[str], str]) -> list[str]:
    """The words of an edit: a number keeps the word at that place, a text is a new word."""
    words = []
    for word in edit["words"]:
        if isinstance(word, int):
            if not 0 <= word < len(was.words):
                raise ScriptError("request", f"The edit keeps word {word} of a command of {len(was.words)} words.")
            words.append(was.words[word])
        else:
            words.append(literal(word))
    return words


def require_secrets_in_place(edit: Json, shown: Sequence[str]) -> None:
    """Raise ScriptError for an edit that keeps what may be secret elsewhere than behind its own flag.

    `shown` are the present words as the engine gets them. Behind another flag a secret would be shown, as the name of
    a model, say.
    """
    hidden = [now != word or _names_secret(word) for now, word in zip(hidden_words(shown), shown)]
    kept = list(edit["words"])
    for at, place in enumerate(kept):
        if not isinstance(place, int) or not hidden[place]:
            continue
        flag = next((one for one in range(place, -1, -1) if shown[one].startswith("-")), 0)
        own = [*range(flag, place + 1)]
        # After `--` a flag is a value.
        if kept[max(0, at - place + flag) : at + 1] != own or "--" in kept[:at]:
            raise ScriptError(
                "refused",
                f"Word {place} of production's command may be secret, and stays behind the words that it has there.",
            )


def _names_secret(word: str) -> bool:
    """Whether a word has a variable's value that may be secret, as its manager reads it."""
    return bool(re.search(r"[$%]", word)) and any(SECRET.search(name) for name in re.findall(r"\w+", word))


def edited_env(was: Command, edit: Json) -> dict[str, str]:
    """The variables of an edit; one of None goes."""
    env = {name: value for name, value in was.env.items() if edit["env"].get(name, value) is not None}
    env.update({name: value for name, value in edit["env"].items() if value is not None})
    return env


def text(place: str, command: Command, words: Sequence[str]) -> str:
    """A definition as it is shown: where it stands, image, environment, and an option with its values a line."""
    lines = [f"# {place}", *([f"image: {command.image}"] if command.image else [])]
    lines += [f"{name}={value}" for name, value in hidden_env(command.env).items()]
    shown = hidden_words(words)
    lines.append(" ".join(shown[: command.program]))
    for word in shown[command.program :]:
        is_value = not word.startswith("-") and lines[-1].startswith("  -")
        lines[-1:] = [f"{lines[-1]} {word}"] if is_value else [lines[-1], f"  {word}"]
    return "\n".join(lines) + "\n"


def difference(was: str, now: str, was_title: str, now_title: str) -> str:
    """A unified diff of two shown definitions; empty where they are equal."""
    titles = (one_line(was_title), one_line(now_title))
    lines = difflib.unified_diff(was.splitlines(), now.splitlines(), *titles, lineterm="", n=100)
    return "\n".join(lines)


def checksum(described: Json) -> str:
    """SHA-256 of a definition, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
