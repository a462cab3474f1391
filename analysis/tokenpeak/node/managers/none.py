"""A node that serves nothing: there is nothing to stop and nothing to bring back."""

from __future__ import annotations

from tokenpeak.node.managers.base import Manager
from tokenpeak.node.state import Json


class NoManager(Manager):
    """Nothing runs, ever."""

    def is_running(self) -> bool:
        """Never."""
        return False

    def stop(self) -> None:
        """Nothing to stop."""

    def start(self, recorded: Json) -> None:
        """Nothing to start."""
