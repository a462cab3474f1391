"""The verbs that every load balancer has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpeak.node import process
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers.base import Manager
from tokenpeak.node.shown import shown_command, shown_output, shown_value
from tokenpeak.node.state import Json

COMMAND_TIMEOUT_S = 60.0


class Balancer:
    """What sends requests to this node; each verb is idempotent and raises ScriptError when the balancer refuses."""

    name = ""

    def __init__(self, declared: Json, manager: Manager) -> None:
        self.declared = declared
        self.manager = manager

    def files(self) -> list[Path]:
        """What root runs or changes at its verbs, as declared."""
        return []

    def members(self) -> list[str]:
        """What of this node the inventory declares to be in it."""
        raise AssertionError("each balancer says so itself")

    def joined(self) -> list[str]:
        """What of this node is in it now: only that is taken out, and only that comes back."""
        raise AssertionError("each balancer says so itself")

    def leave(self, members: list[str]) -> None:
        """Take these out: they get no new requests, and those that run go on."""
        raise AssertionError("each balancer does so itself")

    def is_idle(self, members: list[str]) -> bool:
        """Whether no request runs on these by the balancer's own count; True where it has none."""
        return True

    def rejoin(self, members: list[str]) -> None:
        """Put these back."""
        raise AssertionError("each balancer does so itself")

    def is_back(self, members: list[str]) -> bool:
        """Whether these get requests again; True where the balancer does not say."""
        return True

    def others(self) -> int | None:
        """How many others serve in this node's place; None where the balancer does not say."""
        return None

    def needed(self, key: str) -> Any:
        """A declared value that this balancer cannot do without."""
        if not self.declared.get(key):
            raise ScriptError("declaration", f"tokenpeak_drain.{self.name} has no {shown_value(key)}: add it.")
        return self.declared[key]

    def do(self, argv: list[str]) -> str:
        """What a command prints, which must succeed."""
        ran = process.run(argv, COMMAND_TIMEOUT_S)
        if ran.status != 0:
            raise ScriptError(
                "drain", f"{shown_command(argv)} ended with status {ran.status}: {shown_output(ran.err or ran.out)}."
            )
        return ran.out
