"""Archive and answers of a running sweep: what was recorded stays, even if somebody deletes the folder meanwhile.

Records of trials are held in memory as long as the sweep runs, their requests and logs are not.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import ArchiveError, FencedError
from tokenpeak.quality.answers import read_passes, with_verdict
from tokenpeak.quality.sweep_quality import MeasuredLaunch, SweepAnswers, reference_file
from tokenpeak.records import EndRecord, Plan, SweepRecord, TrialRecord
from tokenpeak.records.quality import QualityPasses, SweepQuality
from tokenpeak.spec.quality import QualityJob, QualitySpec
from tokenpeak.spec.sweep import SweepSpec
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


class AnswersKeeper:
    """The measured answers of all hardware; safe to use from several threads."""

    def __init__(
        self,
        spec: SweepSpec,
        sweep_id: str,
        plans: Sequence[Plan],
        archive: KeptArchive,
        earlier: Iterable[TrialRecord],
        say: Callable[[str], None],
    ) -> None:
        self._sweep_id = sweep_id
        self._archive = archive
        self._say = say
        self._lock = threading.Lock()
        self._launches: dict[str, list[MeasuredLaunch]] = {plan.hardware: [] for plan in plans}
        self._plans: dict[str, SweepAnswers] = {}
        self._quality: SweepQuality | None = None
        self._tasks = None
        if spec.quality is not False and spec.endpoint is None:
            self._plans = {plan.hardware: SweepAnswers(plan, spec.quality, recorded(spec.quality)) for plan in plans}
            self._tasks = paths.HOME / spec.quality.tasks if spec.quality.tasks is not None else None
        for trial in sorted(earlier, key=lambda trial: trial.ended_at):
            self._take(trial)
        self._quality = self._judge()

    def job(self, hardware: str, config_id: str) -> QualityJob | None:
        """What is measured of the next launch of a config; None: nothing."""
        with self._lock:
            answers = self._plans.get(hardware)
            job = answers.job(config_id, self._launches[hardware]) if answers is not None else None
        return job.model_copy(update={"tasks": self._tasks}) if job is not None and self._tasks else job

    def settle(self, trial: TrialRecord) -> None:
        """A trial is in the archive: judge what it answered."""
        with self._lock:
            if not self._take(trial):
                return
            self._quality = self._judge()
            record = self._quality
        if record is not None:
            try:
                self._archive.write_quality(record)
            except ArchiveError as error:
                # It is made of the trials' own files, and written again with the next.
                self._say(f"PROBLEM {error}")

    def judged(self, trial: TrialRecord) -> TrialRecord:
        """The trial with the verdict on its config's answers."""
        with self._lock:
            quality = self._quality
        return with_verdict(trial, quality)

    @property
    def quality(self) -> SweepQuality | None:
        """The verdicts so far; None where nothing is measured."""
        with self._lock:
            return self._quality

    def _take(self, trial: TrialRecord) -> bool:
        if trial.quality is None or trial.status == "interrupted" or trial.hardware not in self._launches:
            return False
        passes: QualityPasses | None = None
        measurement = trial.quality
        try:
            passes = self._archive.read_answers(trial.trial_id)
        except ArchiveError as error:
            measurement = measurement.model_copy(update={"problem": str(error)})
        self._launches[trial.hardware].append(
            MeasuredLaunch(
                trial_id=trial.trial_id, config_id=trial.config.config_id, measurement=measurement, passes=passes
            )
        )
        return True

    def _judge(self) -> SweepQuality | None:
        needed: Mapping[str, SweepAnswers] = {name: each for name, each in self._plans.items() if each.is_needed}
        if not needed:
            return None
        return SweepQuality(
            sweep_id=self._sweep_id,
            references={name: each.words for name, each in needed.items()},
            verdicts=tuple(verdict for name, each in needed.items() for verdict in each.verdicts(self._launches[name])),
        )


def recorded(spec: QualitySpec) -> QualityPasses | None:
    """The reference from the file that the spec names; None where it names none. Raises ArchiveError."""
    path = reference_file(spec)
    return read_passes(path) if path is not None else None
