"""How long each phase of a command took, whose time it was, and which one the node is in now."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Iterator

from tokenpeak.node.machine.state import State
from tokenpeak.node.protocol.parts import Phase, PhaseKind, PhaseName, phase_name

FILE = "phase.json"


class Phases:
    """Spans in seconds since `started_at_unix_s`.

    Kinds as in the raw format: orchestration, engine_start, production_start.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.started_at_unix_s = time.time()
        self._started = time.monotonic()
        self._spans: list[Phase] = []

    @contextmanager
    def span(self, name: PhaseName, kind: PhaseKind = "orchestration") -> Iterator[None]:
        """Time the body; a body that raises is timed too."""
        self.mark(name)
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            started_s, duration_s = round(began - self._started, 4), round(ended - began, 4)
            self._spans.append(Phase(name=name, kind=kind, started_s=started_s, duration_s=duration_s))

    @property
    def spans(self) -> tuple[Phase, ...]:
        """The phases that have ended."""
        return tuple(self._spans)

    def mark(self, name: PhaseName) -> None:
        """Say for `status` which phase the node is in, without timing it."""
        try:
            self._state.write(FILE, {"name": name}, durable=False)
        except OSError:
            # A full disk keeps nobody from giving the node back.
            return


def now(state: State) -> PhaseName | None:
    """The phase that the node is in or was in last; None when there was none yet, or its mark cannot be used."""
    try:
        name: PhaseName = phase_name((state.read(FILE) or {}).get("name"))
    except ValueError:
        return None
    return name
