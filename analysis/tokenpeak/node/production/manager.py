"""Manager of production: the verbs that each kind has, and the command that production's definition starts.

An edit names a word of the command that stays by its place, so that whoever makes it need not know it: keys stay on
the node, and references to variables stay as their manager reads them.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

from tokenpeak.node.machine import process
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import (
    SECRET,
    hidden_env,
    hidden_words,
    one_line,
    shown_command,
    shown_output,
    shown_value,
)
from tokenpeak.node.protocol.requests import PRODUCTION_READY_S

_START_WORDS = ("serve", "api_server")
STOP_TIMEOUT_S = 150.0
"""Longer than systemd's 90 s and any sensible container's, so that the manager's own deadline acts first."""
START_TIMEOUT_S = 300.0
DECLARED_AS = "tokenpeak_production"
WAY_OUT = ", or have production run as a user of its own (User= of a unit, the user of a container, runuser -u USER)"


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


class Manager:
    """Production as its manager runs it and has it defined; each verb is idempotent, ScriptError where it is refused.

    A definition is described as {own, seen}: `own` is all that a change replaces and puts back, `seen` whatever else
    its manager goes by. A change is made by `prepared`, which does everything that can fail for want of room while
    production serves, and by `write`, which is called while production is stopped.
    """

    USER_AS = "user"
    """How its definition names production's user, for who is to add it."""
    is_in_image = False
    """Whether the program is an image's, and no file of this machine."""
    is_user_of_image = False
    """Whether the image decides whom a name of a user means."""
    doubled = ""
    """A character that its definition has twice where the engine gets it once; alone it begins a reference."""
    is_removable = False
    """Whether others may remove what is stopped, by `docker container prune` say; its description is recorded."""

    def __init__(self, declared: Json, state: State) -> None:
        self.declared = declared
        self.state = state
        self.answered_before: Json | None = None
        """Who answered at its url before a trial stopped it; None where no trial did."""
        self.ready_s = PRODUCTION_READY_S
        """How long after its start it may take to answer."""

    @property
    def unit(self) -> str | None:
        """The manager's name of production."""
        value = self.declared.get("unit")
        return str(value) if value is not None else None

    @property
    def name(self) -> str:
        """The unit, which must be declared."""
        return str(self.needed("unit"))

    def files(self) -> list[Path]:
        """Files that root runs or loads at this manager's verbs, as declared."""
        return []

    def definition(self) -> Json:
        """Whatever is needed to bring exactly this back, beside the declaration; recorded before the first change."""
        return {}

    def is_running(self) -> bool:
        """Whether the manager has it running or starting."""
        raise NotImplementedError

    def last_start(self) -> str | None:
        """An identifier of its last start; None where the manager has none."""
        return None

    def was_started(self, since: str | None) -> bool:
        """Whether it runs, or was started after the start that `since` names though it has ended again."""
        return self.is_running()

    def is_as_declared(self) -> bool:
        """Whether what runs was started by the present declaration; True where the manager does not say."""
        return True

    def is_starting(self) -> bool:
        """Whether it counts as running for its start alone; False where the manager itself says what runs."""
        return False

    def is_ending(self) -> bool:
        """Whether a stop is under way that somebody else asked for; False where the manager does not say."""
        return False

    def members(self) -> IsMember | None:
        """Which processes of this machine are production's, now; None where the manager does not say."""
        return None

    def stop(self) -> None:
        """Stop it and return when it has ended."""
        raise NotImplementedError

    def why_it_runs_on(self) -> str:
        """The remedy where it runs on after its stop, with the cause where the manager says one."""
        return "stop it by hand, and see what starts it again."

    def start(self, recorded: Json) -> None:
        """Start it as `recorded` (what `definition` said); need not wait until it answers."""
        raise NotImplementedError

    def note_ready(self) -> None:
        """It has answered since its start."""

    def needed(self, key: str) -> Any:
        """A declared value that this manager cannot do without."""
        if key not in self.declared:
            raise ScriptError(
                "declaration",
                f"tokenpeak_production has manager {shown_value(self.declared.get('manager'))} but no "
                f"{shown_value(key)}: add it.",
            )
        return self.declared[key]

    def do(self, argv: list[str], timeout_s: float = 30.0) -> process.Ran:
        """Run one of the manager's own commands, which must succeed."""
        return succeeded(argv, process.run(argv, timeout_s), "production")

    def ask(self, argv: list[str]) -> process.Ran:
        """As `do`, for a command that says how production stands: where it fails, that is not known."""
        return succeeded(argv, process.run(argv), NOT_SEEN)

    def describe(self) -> Json:
        """Production's definition as it is now."""
        raise ScriptError(
            "definition",
            f"Production with manager {self.declared.get('manager', 'none')} has no definition that could be changed.",
        )

    def command(self, described: Json) -> Command:
        """The command that a described production is started by."""
        raise NotImplementedError

    def user(self, described: Json, command: Command) -> str | None:
        """The user that a described production itself names for this command; None where it names none."""
        raise NotImplementedError

    @property
    def is_node_user(self) -> bool:
        """Whether a name that `user` returns is the node's; where not, an image decides whom it means."""
        return not self.is_user_of_image

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """`own` of the described production with another command, ready to be written; `mark` names the apply."""
        raise NotImplementedError

    def prepare_back(self, own: Json) -> None:
        """Make an earlier `own` ready to be written again."""

    def write(self, own: Json) -> None:
        """Make the definition so."""
        raise NotImplementedError

    def is_loaded(self) -> bool:
        """Whether its manager takes the definition that is there; one that does not stops nothing by it either."""
        return True

    def way_back(self, record: Json) -> Json:
        """`own` that puts back what the apply of a record changed, ready to be written.

        Raises ScriptError where there is none: whatever serves is then left as it is.
        """
        own: Json = record["apply"]["was"]["own"]
        return own

    def make_again(self, described: Json, recorded: Json) -> None:
        """Make described and recorded production anew where somebody has removed it while it was stopped."""

    def is_there(self) -> bool:
        """Whether there is anything by the name that production has: between two containers there may be none."""
        return True

    def clean(self, kept: list[Json]) -> None:
        """Remove what changes left, save what each `own` in `kept` still needs; never what somebody else made."""

    def start_facts(self, recorded: Json) -> Json:
        """The facts that starting production takes after a change, from what was recorded for its start before."""
        return recorded

    def place(self, own: Json) -> str:
        """Where it stands, in words."""
        raise NotImplementedError

    def meaning(self, word: str) -> str:
        """The word that the engine gets for a word as the manager keeps it."""
        return word.replace(self.doubled * 2, self.doubled) if self.doubled else word

    def literal(self, word: str) -> str:
        """How the manager keeps a word that the engine is to get as it is."""
        return word.replace(self.doubled, self.doubled * 2) if self.doubled else word

    def shown_words(self, command: Command) -> list[str]:
        """The command's words as the engine gets them."""
        return [self.meaning(word) for word in command.words]

    def as_command(self, words: list[str], env: dict[str, str], image: str | None = None) -> Command:
        """A command whose program ends with `serve`."""
        return Command(tuple(words), env, self.program_of(words), image)

    def program_of(self, words: list[str]) -> int:
        """How many of the words are the program: what an edit says of that is never asked."""
        return program_words([self.meaning(word) for word in words])

    def edited(self, was: Command, edit: Json) -> Command:
        """The command with an edit."""
        words = edited_words(was, edit, self.literal)
        require_secrets_in_place(edit, self.shown_words(was))
        # An image's own program is no word.
        program = self.program_of(words) if was.program else 0
        return Command(tuple(words), edited_env(was, edit), program, edit.get("image") or was.image)

    def as_kept(self, was: Command, new: Command, kept: dict[str, str]) -> dict[str, str]:
        """The new variables as the manager keeps them: those that stay as they are `kept`, others literally."""
        return {
            name: kept[name] if name in kept and was.env.get(name) == value else self.literal(value)
            for name, value in new.env.items()
        }


def succeeded(argv: list[str], ran: process.Ran, code: str) -> process.Ran:
    """The run of a command; raises ScriptError with this code where it failed."""
    if ran.status != 0:
        raise ScriptError(
            code, f"{shown_command(argv)} ended with status {ran.status}: {shown_output(ran.err or ran.out)}."
        )
    return ran


class NoManager(Manager):
    """Nothing runs, ever."""

    def is_running(self) -> bool:
        """Never."""
        return False

    def stop(self) -> None:
        """Nothing to stop."""

    def start(self, recorded: Json) -> None:
        """Nothing to start."""
