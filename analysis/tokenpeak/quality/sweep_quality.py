"""Quality of a sweep's configs on one kind of hardware: what each launch is asked, and what came of it so far; pure.

Configs of which nothing that differs can change answers share a measurement: one launch of them is measured. Of the
reference a second launch is too, where there is one, for its noise floor.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpeak.quality.comparison import floor_of
from tokenpeak.quality.reference import ReferenceChoice, changes, choose_reference
from tokenpeak.quality.verdict import Reference, judge
from tokenpeak.records import Plan, PlannedConfig
from tokenpeak.records.quality import AnswersQuality, QualityMeasurement, QualityPasses, QualityVerdict
from tokenpeak.spec.quality import QualityJob, QualitySpec

REFERENCE_LAUNCHES = 2
"""Of the reference so many launches are measured: the second shows what another launch changes."""
REFERENCE_PASSES = 2
MOST_ATTEMPTS = 2
"""A measurement that broke off is made again in the next launch that answers alike, once."""


@dataclass(frozen=True, kw_only=True)
class MeasuredLaunch:
    """A launch whose answers were measured, or were to be; `passes` is None where that broke off."""

    trial_id: str
    config_id: str
    measurement: QualityMeasurement
    passes: QualityPasses | None


class SweepAnswers:
    """What is measured of one plan's launches and what follows; `recorded` is a reference from a file."""

    def __init__(self, plan: Plan, spec: QualitySpec, recorded: QualityPasses | None = None) -> None:
        self._plan = plan
        self._spec = spec
        self._recorded = recorded
        self._alike: dict[str, list[PlannedConfig]] = {}
        for planned in plan.feasible:
            self._alike.setdefault(planned.answers or planned.config.config_id, []).append(planned)
        self._key = {planned.config.config_id: key for key, alike in self._alike.items() for planned in alike}
        self.reference: ReferenceChoice | None = None if recorded is not None else choose_reference(plan, spec)

    @property
    def is_needed(self) -> bool:
        """Whether any config may answer otherwise than the reference."""
        return len(self._alike) > 1 or (self._recorded is not None and bool(self._alike))

    @property
    def words(self) -> str:
        """The reference and why it is that one."""
        if self.reference is None:
            return f"recorded answers of {self._spec.reference}"
        return f"{self.reference.planned.config.name} ({self.reference.why})"

    def job(self, config_id: str, launches: Sequence[MeasuredLaunch]) -> QualityJob | None:
        """What is measured of the next launch of a config; None: nothing, others have shown it."""
        key = self._key.get(config_id)
        if key is None or not self.is_needed:
            return None
        own = [launch for launch in launches if self._key.get(launch.config_id) == key]
        good = sum(launch.passes is not None for launch in own)
        wanted = REFERENCE_LAUNCHES if key == self._reference_key else 1
        if good >= wanted or len(own) - good >= MOST_ATTEMPTS:
            return None
        is_first_reference = key == self._reference_key and not good
        return QualityJob(
            tokens=self._spec.tokens,
            context=self._shortest_context(),
            passes=REFERENCE_PASSES if is_first_reference else 1,
        )

    def verdicts(self, launches: Sequence[MeasuredLaunch]) -> tuple[AnswersQuality, ...]:
        """The verdict on each group of configs of which a launch was measured."""
        if not self.is_needed:
            return ()
        by_key: dict[str, list[MeasuredLaunch]] = {}
        for launch in launches:
            if launch.config_id in self._key:
                by_key.setdefault(self._key[launch.config_id], []).append(launch)
        reference, missing = self._reference(by_key.get(self._reference_key or "", ()))
        return tuple(self._verdict(key, own, reference, missing) for key, own in by_key.items())

    def _reference(self, own: Sequence[MeasuredLaunch]) -> tuple[Reference | None, str]:
        """The reference's answers with its floor, or why there are none."""
        if self._recorded is not None:
            first, *again = self._recorded.passes
            return Reference(answers=first, floor=floor_of(first, again, ())), ""
        good = [launch.passes.passes for launch in own if launch.passes is not None]
        if good:
            (first, *again), *others = good
            floor = floor_of(first, again, [passes[0] for passes in others])
            return Reference(answers=first, floor=floor), ""
        why = f": {own[-1].measurement.problem}" if own and own[-1].measurement.problem else " yet"
        return None, f"The reference, {self.words}, was not measured{why}."

    def _verdict(
        self, key: str, own: Sequence[MeasuredLaunch], reference: Reference | None, missing: str
    ) -> AnswersQuality:
        is_reference = key == self._reference_key
        good = [launch for launch in own if launch.passes is not None]
        margin = self._spec.margin
        if is_reference and (good or reference is not None):
            verdict = QualityVerdict(status="pass", reason="It is the reference.", margin_nats=margin)
        elif reference is None:
            verdict = QualityVerdict(status="unknown", reason=missing, margin_nats=margin)
        else:
            answers = good[0].passes.passes[0] if good and good[0].passes is not None else None
            verdict = judge(answers, own[-1].measurement.problem, reference, margin)
        configs = self._alike[key]
        against = self.reference.planned.config if self.reference is not None else None
        return AnswersQuality(
            hardware=self._plan.hardware,
            answers=key,
            config_ids=tuple(planned.config.config_id for planned in configs),
            trial_ids=tuple(launch.trial_id for launch in good),
            is_reference=is_reference,
            changes=changes(configs[0].config, against) if against is not None and not is_reference else (),
            verdict=verdict,
        )

    @property
    def _reference_key(self) -> str | None:
        return self._key[self.reference.planned.config.config_id] if self.reference is not None else None

    def _shortest_context(self) -> int | None:
        """The least context that a config asks for; long questions are as long for all."""
        asked = [planned.config.flags.get("max_model_len") for planned in self._plan.feasible]
        lengths = [length for length in asked if isinstance(length, int) and not isinstance(length, bool)]
        return min(lengths, default=None)
