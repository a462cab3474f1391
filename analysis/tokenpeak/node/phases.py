"""How long each phase of a command took, and whose time it was."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any, Iterator


class Phases:
    """Spans in seconds since `started_at_unix_s`.

    Kinds as in the raw format: orchestration, engine_start, production_start.
    """

    def __init__(self) -> None:
        self.started_at_unix_s = time.time()
        self._started = time.monotonic()
        self.spans: list[dict[str, Any]] = []

    @contextmanager
    def span(self, name: str, kind: str = "orchestration") -> Iterator[None]:
        """Time the body; a body that raises is timed too."""
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
