"""The verbs by which a manager's definition of production is described, changed and put back."""

from __future__ import annotations

from typing import Any

from tokenpeak.node.engine_command import (
    Command,
    edited_env,
    edited_words,
    program_words,
    require_secrets_in_place,
)
from tokenpeak.node.managers.base import Manager
from tokenpeak.node.state import Json


class Definition:
    """How a manager has production defined.

    A description is {own, seen}: `own` is all that a change replaces and puts back, `seen` what else its manager goes
    by. Each verb is idempotent and raises ScriptError when the manager refuses. A change is made by `prepared`, which
    does everything that can fail for want of room while production serves, and by `write`, which is called while
    production is stopped.
    """

    USER_AS = "user"
    """How it names production's user, for who is to add it."""
    is_in_image = False
    """Whether the program is an image's, and no file of this machine."""
    is_removable = False
    """Whether others may remove what is stopped, by `docker container prune` say; its description is recorded."""

    def __init__(self, manager: Manager) -> None:
        self.manager: Any = manager

    def describe(self) -> Json:
        """Production's definition as it is now."""
        raise AssertionError("each definition says so itself")

    def command(self, described: Json) -> Command:
        """What a described production is started by."""
        raise AssertionError("each definition says so itself")

    def user(self, described: Json, command: Command) -> str | None:
        """The user that a described production itself names for this command; None where it names none."""
        raise AssertionError("each definition says so itself")

    def is_node_user(self) -> bool:
        """Whether a name that `user` says is the node's; where not, an image decides whom it means."""
        return True

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """`own` of the described production with another command, ready to be written; `mark` names the apply."""
        raise AssertionError("each definition does so itself")

    def prepare_back(self, own: Json) -> None:
        """Make an earlier `own` ready to be written again."""

    def write(self, own: Json) -> None:
        """Make the definition so."""
        raise AssertionError("each definition does so itself")

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
        """What starting production takes after a change, from what was recorded for its start before."""
        return recorded

    def place(self, own: Json) -> str:
        """Where it stands, in words."""
        raise AssertionError("each definition says so itself")

    def meaning(self, word: str) -> str:
        """What the engine gets for a word as the manager keeps it."""
        return word

    def literal(self, word: str) -> str:
        """How the manager keeps a word that the engine is to get as it is."""
        return word

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
