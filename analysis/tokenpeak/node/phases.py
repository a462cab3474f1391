"""How long each phase of a command took, whose time it was, and which one the node is in now."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any, Iterator

from tokenpeak.node.state import State

FILE = "phase"


class Phases:
    """Spans in seconds since `started_at_unix_s`.

    Kinds as in the raw format: orchestration, engine_start, production_start.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.started_at_unix_s = time.time()
        self._started = time.monotonic()
        self.spans: list[dict[str, Any]] = []

    @contextmanager
    def span(self, name: str, kind: str = "orchestration") -> Iterator[None]:
        """Time the body; a body that raises is timed too."""
        self.mark(name)
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self.spans.append(
                {
                    "name": name,
                    "kind": kind,
                    "started_s": round(began - self._started, 4),
                    "duration_s": round(ended - began, 4),
                }
            )

    def mark(self, name: str) -> None:
        """Say for `status` which phase the node is in, without timing it."""
        try:
            self._state.path(FILE).write_text(name)
        except OSError:
            # A full disk keeps nobody from giving the node back.
            return


def now(state: State) -> str | None:
    """The phase that the node is in or was in last; None when there was none yet."""
    path = state.path(FILE)
    return path.read_text() if path.exists() else None
