"""The verbs that every manager of production has: to run it, and to describe, change and put back its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpeak.node.engine.command import Command, edited_env, edited_words, program_words, require_secrets_in_place
from tokenpeak.node.machine import process
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.protocol.requests import PRODUCTION_READY_S

STOP_TIMEOUT_S = 150.0
"""Longer than systemd's 90 s and any sensible container's, so that the manager's own deadline acts first."""
START_TIMEOUT_S = 300.0
DECLARED_AS = "tokenpeak_production"
WAY_OUT = ", or have production run as a user of its own (User= of a unit, the user of a container, runuser -u USER)"


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
