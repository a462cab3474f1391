"""Record of a trial: production as it was, and by when it must be back. It is there while a trial has the node.

Beside it are written down how each trial's restoration ended, and which phase the node is in.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import contextmanager
from typing import Callable, Iterator

from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import remedy
from tokenpeak.node.machine.state import Json, State, UnreadableError
from tokenpeak.node.protocol.parts import Phase, PhaseKind, PhaseName, phase_name

NAME = "record.json"
MANAGERS_ENVIRONMENT = ("PATH", "HOME", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
"""Variables by which a manager's command finds its program and settings. Whoever gives the node back may have others:
systemd gives the guard no HOME, and a shorter PATH than a login has."""
_NEEDED = ("nonce", "holder", "boot_id", "trial_id", "production", "production_ready_s", "engine_stop_s")
OUTCOME_FILE = "outcome.json"
SPARE = "outcome"
"""Key of the outcome that the disk refused, among what is kept in memory."""
_EARLIER = "earlier"
_MOST_EARLIER = 24
"""Whoever may run trials cannot fill the disk with outcomes."""
PHASE_FILE = "phase.json"


def new(production: Json, drain: Json | None, production_ready_s: float, engine_stop_s: float) -> Json:
    """The part of a new record that trials and applies share."""
    return {
        "nonce": secrets.token_hex(8),
        "armed_at_unix_s": time.time(),
        "boot_id": clock.boot_id(),
        "environment": {name: os.environ[name] for name in MANAGERS_ENVIRONMENT if name in os.environ},
        "production": production,
        "drain": drain,
        "production_ready_s": production_ready_s,
        "engine_stop_s": engine_stop_s,
    }


def read(state: State) -> Json | None:
    """The record with all that giving the node back needs; None when no trial has the node.

    Raises UnreadableError when there is one that nobody can restore from.
    """
    record = state.read(NAME)
    if record is None:
        return None
    missing = [name for name in _NEEDED if name not in record]
    if missing:
        raise UnreadableError(f"{state.path(NAME)} lacks {', '.join(missing)}: look at it, then remove it.")
    return record


def read_if_possible(state: State) -> Json | None:
    """The record; None also where it is there and cannot be read, or has just gone."""
    try:
        return read(state)
    except UnreadableError:
        return None


def note_outcome(state: State, outcome: Json, nonce: str | None) -> str | None:
    """Write an outcome down; where the disk refuses, keep it in memory for the record `nonce`, and say why it does."""
    others = [known for known in known_outcomes(state) if _trial(known) != _trial(outcome) and known.get("trial_id")]
    try:
        state.write(OUTCOME_FILE, {**outcome, _EARLIER: others[:_MOST_EARLIER]})
    except OSError as error:
        if outcome["restored"] and nonce is not None:
            first = state.read_spare().get(SPARE) or {}
            by = first["by"] if first.get("nonce") == nonce else outcome["by"]
            state.write_spare(outcome={**outcome, "nonce": nonce, "by": by})
        return f"{error.strerror}{remedy(error)}"
    state.write_spare(outcome=None)
    return None


def known_outcomes(state: State) -> list[Json]:
    """All that are known, the last one first; of what the disk refused, the one in memory."""
    last = state.read(OUTCOME_FILE)
    earlier = (last or {}).get(_EARLIER)
    entries = [state.read_spare().get(SPARE), last, *(earlier if isinstance(earlier, list) else [])]
    outcomes = [each for each in entries if isinstance(each, dict) and "restored" in each]
    return [{name: value for name, value in each.items() if name != _EARLIER} for each in outcomes]


def outcome_of_trial(state: State, trial_id: str, holder: str) -> Json | None:
    """How this very trial's restoration ended; None where none is known."""
    return _first(state, lambda known: _trial(known) == (trial_id, holder))


def outcome_of_holder(state: State, holder: str | None) -> Json | None:
    """The last outcome of a holder's trials, or of anybody's where there is none, or `holder` is None."""
    own = _first(state, lambda known: known.get("holder") == holder) if holder else None
    return own or _first(state, lambda _: True)


def _first(state: State, is_it: Callable[[Json], bool]) -> Json | None:
    return next(filter(is_it, known_outcomes(state)), None)


def _trial(outcome: Json) -> tuple[object, object]:
    return outcome.get("trial_id"), outcome.get("holder")


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
            self._state.write(PHASE_FILE, {"name": name}, durable=False)
        except OSError:
            # A full disk keeps nobody from giving the node back.
            return


def current_phase(state: State) -> PhaseName | None:
    """The phase that the node is in or was in last; None when there was none yet, or its mark cannot be used."""
    try:
        name: PhaseName = phase_name((state.read(PHASE_FILE) or {}).get("name"))
    except ValueError:
        return None
    return name
