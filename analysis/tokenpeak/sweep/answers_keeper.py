"""Answers of a running sweep: which launch is measured, and what came of it, in the archive and in memory."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from tokenpeak import paths
from tokenpeak.errors import ArchiveError
from tokenpeak.quality.applied import with_verdict
from tokenpeak.quality.passes import read_passes
from tokenpeak.quality.reference import reference_file
from tokenpeak.quality.sweep_quality import MeasuredLaunch, SweepAnswers
from tokenpeak.records import Plan, TrialRecord
from tokenpeak.records.quality import QualityPasses, SweepQuality
from tokenpeak.spec.quality import QualityJob, QualitySpec
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.archive_keeper import KeptArchive


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
            found = answers.job(config_id, self._launches[hardware]) if answers is not None else None
        return found.model_copy(update={"tasks": self._tasks}) if found is not None and self._tasks else found

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
