"""Archive of a running sweep: a recorded trial stays recorded, even if somebody deletes the folder meanwhile.

Records of trials are held in memory as long as the sweep runs, their requests and logs are not.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenpeak.errors import ArchiveError, FencedError
from tokenpeak.records import EndRecord, SweepRecord, TrialRecord
from tokenpeak.records.quality import QualityPasses, SweepQuality
from tokenpeak.store.archive import Archive

_SETTLED_S = 1.0
"""Whoever deletes a folder takes a moment, and would take away what is written meanwhile."""


class KeptArchive:
    """An archive and a copy of its records; safe to use from several threads. `problem` says what was lost, if so."""

    def __init__(
        self, archive: Archive, record: SweepRecord, trials: Iterable[TrialRecord], say: Callable[[str], None]
    ) -> None:
        self.problem: str | None = None
        self._archive = archive
        self._record = record
        self._trials = {trial.trial_id: trial for trial in trials}
        self._say = say
        self._said = ""
        self._gone_since_s: float | None = None
        self._lock = threading.Lock()

    def write_trial(
        self,
        record: TrialRecord,
        requests_parquet: Path | None = None,
        log_text: str = "",
        answers: Path | None = None,
    ) -> None:
        """Write a trial, and first whatever has gone; raises ArchiveError when there is no place for it."""
        with self._lock:
            self._write_what_is_gone()
            self._archive.write_trial(record, requests_parquet, log_text, answers)
            self._trials[record.trial_id] = record

    def write_quality(self, record: SweepQuality) -> None:
        """Write the verdicts so far, and first whatever has gone; raises ArchiveError when there is no place for it."""
        with self._lock:
            self._write_what_is_gone()
            self._archive.write_quality(record)

    def read_answers(self, trial_id: str) -> QualityPasses | None:
        """What a trial's launch answered; raises ArchiveError for a file that cannot be read."""
        return self._archive.read_answers(trial_id)

    def write_end(self, record: EndRecord) -> None:
        """Write how the sweep ended, and first whatever has gone; raises ArchiveError when there is no place for it."""
        with self._lock:
            self._write_what_is_gone()
            self._archive.write_end(record)

    def check(self) -> None:
        """Write what has gone; where that cannot be done, say so once and leave it to the next call."""
        with self._lock, contextlib.suppress(FencedError):
            if not self._is_gone():
                self._gone_since_s = None
                return
            self._gone_since_s = self._gone_since_s or time.monotonic()
            if time.monotonic() < self._gone_since_s + _SETTLED_S:
                return
            try:
                self._write_what_is_gone()
            except ArchiveError as error:
                self._say_once(f"PROBLEM {error} What was measured is kept in memory until then.")

    def _is_gone(self) -> bool:
        return not self._has_sweep() or any(not self._archive.trial_path(name).is_file() for name in self._trials)

    def _has_sweep(self) -> bool:
        return (self._archive.path / "sweep.json").is_file()

    def _write_what_is_gone(self) -> None:
        if not self._is_gone():
            return
        gone = [trial for name, trial in self._trials.items() if not self._archive.trial_path(name).is_file()]
        self.problem = (
            f"{self._archive.path} was deleted while the sweep ran, with {len(gone)} trials. It is written again from "
            "memory; their single requests, engine logs and answers are lost."
        )
        self._say_once(f"PROBLEM {self.problem}")
        if not self._has_sweep():
            self._archive.write_sweep(self._record)
        for trial in gone:
            self._archive.write_trial(trial)

    def _say_once(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self._say(words)
