"""Guard's report: whom it notifies and which metrics it writes. Nothing here raises, and nothing here is waited for."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Callable, Dict, Optional

from tokenpeak.node.guard import notify
from tokenpeak.node.machine import process, root_files
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.protocol.parts import RestoreOutcome

METRICS = {
    "tokenpeak_node_armed": "A trial or an apply has the node: its guard watches until production is back.",
    "tokenpeak_guard_due": "The node must be given back now and is not yet.",
    "tokenpeak_guard_restored": "Whether production is back after the guard's last attempt.",
    "tokenpeak_guard_acted_timestamp_seconds": "When the guard last gave the node back itself.",
    "tokenpeak_guard_seen_timestamp_seconds": "When the guard last looked; it looks only while the node is armed.",
}
"""Metric, a gauge each → what it says."""
SEEN = "tokenpeak_guard_seen_timestamp_seconds"
EVERY_S = 15.0
LAST_WRITE_S = 2.0

Values = Dict[str, Optional[float]]


def exposition(values: Values, labels: dict[str, str]) -> str:
    """The metrics with a value in Prometheus' text format."""
    inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    lines = []
    for name, says in METRICS.items():
        value = values.get(name)
        if value is not None:
            lines += [f"# HELP {name} {says}", f"# TYPE {name} gauge", f"{name}{{{inside}}} {value}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Textfile:
    """A file that a thread keeps up to date; what is set here is written within a moment."""

    def __init__(self, path: Path, labels: dict[str, str], say: Callable[[str], None]) -> None:
        self._path = path
        self._labels = labels
        self._say = say
        self._values: Values = {}
        self._changed = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write_on, daemon=True)
        self._thread.start()

    def set(self, **values: float | None) -> None:
        """Change metrics by their names; None takes one out."""
        if any(name not in self._values or self._values[name] != value for name, value in values.items()):
            self._values = {**self._values, **values}
            self._changed.set()

    def close(self) -> None:
        """Write the last values, if the folder lets that be done in a moment."""
        self._is_over.set()
        self._changed.set()
        self._thread.join(LAST_WRITE_S)

    def _write_on(self) -> None:
        reported = ""
        while True:
            self._changed.wait(EVERY_S)
            self._changed.clear()
            is_last = self._is_over.is_set()
            try:
                self._write()
            except OSError as error:
                words = f"cannot write metrics to {self._path}: {error.strerror}"
                if words != reported:
                    self._say(words)
                reported = words
            if is_last:
                return

    def _write(self) -> None:
        """Replace the file; whoever collects may be another user."""
        text = exposition({**self._values, SEEN: round(time.time(), 3)}, self._labels)
        root_files.put(self._path, text.encode(), 0o644, durable=False)


ACTED = "guard-acted.json"
LOG = "notify.log"


def textfile_path(folder: Path, state: State) -> Path:
    """Where the metrics of a state folder's guard are; machines with several have a file for each."""
    return folder / f"tokenpeak-{state.digest}.prom"


class GuardReport:
    """Of one guard, from its start to its end; `say` is the guard's own log."""

    def __init__(self, state: State, say: Callable[[str], None]) -> None:
        self._state = state
        self._say = say
        self._declaration: Json = {}
        self._textfile: Textfile | None = None
        self._notified: set[tuple[str, str | None]] = set()
        self._failed = False
        try:
            self._declaration = state.declaration()
            if folder := self._declaration.get("textfile_dir"):
                path = textfile_path(Path(folder), state)
                self._textfile = Textfile(path, {"node": self._node}, say)
                acted = state.read(ACTED) or {}
                self._set(tokenpeak_guard_acted_timestamp_seconds=acted.get("at_unix_s"))
        except Exception as error:  # a guard without a report is a guard
            say(f"cannot report: {type(error).__name__}: {error}")

    @property
    def _node(self) -> str:
        return str(self._declaration.get("node", "?"))

    def watching(self, why: str | None) -> None:
        """The guard has looked: the node is armed, and `why` it is due, if it is."""
        self._set(tokenpeak_node_armed=1.0, tokenpeak_guard_due=float(why is not None))

    def attempted(self, record: Json | None, why: str, outcome: RestoreOutcome) -> None:
        """The guard has tried to give the node back by its record; somebody else may have been first."""
        try:
            self._attempted(record or {}, why, outcome)
        except Exception as error:  # whatever it was, the guard goes on
            self._say(f"nobody could be notified: {type(error).__name__}: {error}")

    def close(self) -> None:
        """The guard ends: no trial has the node, whoever gave it back; an attempt that failed is over with it."""
        self._set(tokenpeak_node_armed=0.0, tokenpeak_guard_due=0.0)
        if self._failed:
            self._set(tokenpeak_guard_restored=1.0)
        try:
            for kind, nonce in [*self._notified]:
                if kind == "production_down":
                    self._notify("production_back", nonce, None, f"Production of {self._node} is back.")
        except Exception as error:  # the node is given back
            self._say(f"nobody could be notified: {type(error).__name__}: {error}")
        if self._textfile is not None:
            self._textfile.close()

    def _set(self, **values: float | None) -> None:
        if self._textfile is not None:
            self._textfile.set(**values)

    def _attempted(self, record: Json, why: str, outcome: RestoreOutcome) -> None:
        nonce, trial_id = record.get("nonce"), record.get("trial_id")
        of = f"trial {trial_id}" if trial_id else "a trial"
        if outcome.restored and outcome.by == "guard":
            now = round(time.time(), 3)
            self._failed = False
            self._set(tokenpeak_guard_restored=1.0, tokenpeak_guard_acted_timestamp_seconds=now)
            text = f"The guard of {self._node} gave the node back from {of}: {why}. "
            self._notify("guard_acted", nonce, trial_id, text + _served(outcome))
            try:
                self._state.write(ACTED, {"at_unix_s": now}, durable=False)
            except (OSError, ScriptError) as error:
                self._say(f"cannot note that the guard acted: {error}")
        elif not outcome.restored and outcome.message:
            self._failed = True
            self._set(tokenpeak_guard_restored=0.0)
            down = (
                f"Whether production of {self._node} is back after {of} is not known"
                if outcome.restored is None
                else f"Production of {self._node} does not come back after {of}"
            )
            text = (
                f"{down}: {why}. The guard goes on trying. Look with `tokenpeak status`, and at the guard's journal on "
                "the node."
            )
            self._notify("production_down", nonce, trial_id, text)

    def _notify(self, kind: str, nonce: str | None, trial_id: str | None, text: str) -> None:
        """Once for each record."""
        if (kind, nonce) in self._notified:
            return
        receivers = notify.called(self._declaration.get("notify"), kind, "node")
        sent = notify.event(kind, text, source=f"guard of {self._node}", node=self._node, trial_id=trial_id)
        argv = [*process.self_argv(), "notify", "--state", str(self._state.folder)]
        notify.start(argv, receivers, sent, self._state.path(LOG))
        self._notified.add((kind, nonce))


def _served(outcome: RestoreOutcome) -> str:
    if not outcome.was_running:
        return "Production was down before and was left so."
    return f"Production serves {outcome.model}." if outcome.model else "Production runs."
