"""The verbs that every manager of production has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpeak.node import process, root_programs
from tokenpeak.node.error import NOT_SEEN, ScriptError
from tokenpeak.node.identity import IsMember, Seen
from tokenpeak.node.protocol.requests import PRODUCTION_READY_S
from tokenpeak.node.shown import shown_command, shown_output, shown_value
from tokenpeak.node.state import Json, State

STOP_TIMEOUT_S = 150.0
"""Longer than systemd's 90 s and any sensible container's, so that the manager's own deadline acts first."""
START_TIMEOUT_S = 300.0
DECLARED_AS = "tokenpeak_production"
WAY_OUT = ", or have production run as a user of its own (User= of a unit, the user of a container, runuser -u USER)"


class Manager:
    """Production as its manager sees it; each verb is idempotent and raises ScriptError when the manager refuses."""

    def __init__(self, declared: Json, state: State) -> None:
        self.declared = declared
        self.state = state
        self.answered_before: Seen | None = None
        """Who answered at its url before a trial stopped it; None where no trial did."""
        self.ready_s = PRODUCTION_READY_S
        """How long after its start it may take to answer."""

    @property
    def unit(self) -> str | None:
        """What the manager calls production."""
        value = self.declared.get("unit")
        return str(value) if value is not None else None

    def files(self) -> list[Path]:
        """What root runs or loads at this manager's verbs, as declared."""
        return []

    def require_own_files(self) -> None:
        """Raise ScriptError where others can write what root would run or load."""
        root_programs.require(DECLARED_AS, self.files(), WAY_OUT)

    def definition(self) -> Json:
        """Whatever is needed to bring exactly this back, beside the declaration; recorded before the first change."""
        return {}

    def is_running(self) -> bool:
        """Whether the manager has it running or starting."""
        raise AssertionError("each manager says so itself")

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

    def is_enabled(self) -> bool | None:
        """Whether it comes back at boot; None where the manager has no such notion."""
        return None

    def members(self) -> IsMember | None:
        """Which processes of this machine are production's, now; None where the manager does not say."""
        return None

    def stop(self) -> None:
        """Stop it and return when it has ended."""
        raise AssertionError("each manager does so itself")

    def why_it_runs_on(self) -> str:
        """What to do where it runs on after its stop, with the cause where the manager says one."""
        return "stop it by hand, and see what starts it again."

    def start(self, recorded: Json) -> None:
        """Start it as `recorded` (what `definition` said); need not wait until it answers."""
        raise AssertionError("each manager does so itself")

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
        return _succeeded(argv, process.run(argv, timeout_s), "production")

    def ask(self, argv: list[str]) -> process.Ran:
        """As `do`, for a command that says how production stands: where it fails, that is not known."""
        return _succeeded(argv, process.run(argv), NOT_SEEN)


def _succeeded(argv: list[str], ran: process.Ran, code: str) -> process.Ran:
    if ran.status != 0:
        raise ScriptError(
            code, f"{shown_command(argv)} ended with status {ran.status}: {shown_output(ran.err or ran.out)}."
        )
    return ran
