"""Text file of Prometheus metrics: what a guard does, for the text-file collector of a node exporter.

`tokenpeak_textfile_dir` of the inventory names the collector's folder. A thread writes, so that a folder that hangs
keeps nobody from giving the node back.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Callable, Dict, Optional

from tokenpeak.node import root_files

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
        said = ""
        while True:
            self._changed.wait(EVERY_S)
            self._changed.clear()
            is_last = self._is_over.is_set()
            try:
                self._write()
            except OSError as error:
                words = f"cannot write metrics to {self._path}: {error.strerror}"
                if words != said:
                    self._say(words)
                said = words
            if is_last:
                return

    def _write(self) -> None:
        """Replace the file; whoever collects may be another user."""
        text = exposition({**self._values, SEEN: round(time.time(), 3)}, self._labels)
        root_files.put(self._path, text.encode(), 0o644, durable=False)
