"""A balancer that two commands of the inventory's take the node out of, and put it back."""

from __future__ import annotations

from pathlib import Path

from tokenpeak.node import root_programs
from tokenpeak.node.balancers.base import Balancer
from tokenpeak.node.error import ScriptError
from tokenpeak.node.shown import shown_value

ALL = "this node"


class CommandBalancer(Balancer):
    """declared: before and after, lists of arguments."""

    def files(self) -> list[Path]:
        """What the two commands run."""
        declared = [self.declared.get(key) for key in ("before", "after")]
        words = [[str(word) for word in command] for command in declared if isinstance(command, list)]
        return [file for command in words for file in root_programs.of_command(command)]

    def members(self) -> list[str]:
        """The node as a whole."""
        return [ALL]

    def joined(self) -> list[str]:
        """Nobody says: it is taken for joined."""
        self._argv("after")
        return [ALL]

    def leave(self, members: list[str]) -> None:
        """Run `before`."""
        self.do(self._argv("before"))

    def rejoin(self, members: list[str]) -> None:
        """Run `after`."""
        self.do(self._argv("after"))

    def _argv(self, key: str) -> list[str]:
        declared = self.declared.get(key)
        if not isinstance(declared, list) or not declared:
            raise ScriptError(
                "declaration", f"tokenpeak_drain.{key} is {shown_value(declared)}: give a list of arguments."
            )
        return [str(word) for word in declared]
