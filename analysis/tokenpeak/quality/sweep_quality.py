"""Quality of a sweep's configs on one kind of hardware: the reference, what each launch is asked, the verdicts; pure.

The reference is declared, or of production's and the defaults the one of higher precision. Of a plan without these it
is the config of the highest precision that changes the fewest settings which can change answers. Configs of which
nothing that differs can change answers share a measurement: one launch of them is measured. Of the reference a second
launch is too, where there is one, for its noise floor.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import FactsError, PlanError, suggestion
from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.plan.baseline import DEFAULTS, PRODUCTION
from tokenpeak.predict.model import ModelFacts, are_other_models, model_facts
from tokenpeak.predict.quantization import METHODS
from tokenpeak.quality.answers import floor_of
from tokenpeak.quality.verdict import Reference, judge
from tokenpeak.ranking.precision import precision_of
from tokenpeak.records import Config, Plan, PlannedConfig
from tokenpeak.records.quality import AnswersQuality, QualityMeasurement, QualityPasses, QualityVerdict
from tokenpeak.spec.quality import QualityJob, QualitySpec
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.flag_effects import answer_settings, other_settings

_WIDTHS = {"float32": 32.0, "fp8": 8.0, "int8": 8.0, "fp4": 4.0}
_SIXTEEN = 16.0
_FILES = (".json", ".json.zst")


@dataclass(frozen=True, kw_only=True)
class ReferenceChoice:
    """The reference of a plan, and why it is that one, in words."""

    planned: PlannedConfig
    why: str


def choose_reference(plan: Plan, spec: QualitySpec) -> ReferenceChoice | None:
    """The plan's reference; None where it has no config, or where the spec names a file.

    Raises PlanError for the name of no config of the plan.
    """
    known = {planned.config.name: planned for planned in plan.feasible}
    models = {planned.config.model.name for planned in plan.feasible}
    if not known or reference_file(spec) is not None:
        return None
    if spec.reference is not None:
        if spec.reference not in known:
            words = f"quality.reference is {spec.reference!r}. {suggestion(spec.reference, known)}"
            raise PlanError(f"{words} Name a config that is feasible on {plan.hardware}, or a .json file of answers.")
        return ReferenceChoice(planned=known[spec.reference], why="declared")
    # Another server does not score texts as vLLM does, so nothing can be compared with its answers.
    own = [planned for planned in plan.feasible if is_vllm(planned.config.engine_version)]
    served = [known[name] for name in (PRODUCTION, DEFAULTS) if name in known and known[name] in own]
    if served:
        best = max(served, key=lambda planned: precision_bits(planned.config))
        why = "what runs now" if best.config.name == PRODUCTION else "vLLM's defaults"
        if len(served) == 2 and precision_bits(served[0].config) != precision_bits(served[1].config):
            why += ", of higher precision than the other of production and defaults"
        return ReferenceChoice(planned=best, why=why)
    if not own or any(are_other_models(*pair) for pair in combinations(sorted(models), 2)):
        # Nothing runs now, and no model's answers are those that another should give.
        return None
    first = min(
        own,
        key=lambda planned: (
            tuple(-bits for bits in precision_bits(planned.config)),
            len(answer_settings(planned.config)),
        ),
    )
    return ReferenceChoice(planned=first, why="the highest precision of the sweep, with the fewest settings")


def reference_file(spec: QualitySpec) -> Path | None:
    """The file of recorded answers that the spec names; None where it names a config, or nothing."""
    if spec.reference is None or not spec.reference.endswith(_FILES):
        return None
    return paths.HOME / Path(spec.reference).expanduser()


def precision_bits(config: Config) -> tuple[float, float, float]:
    """Bits of weights, of the KV cache and of the computation, as far as flags and the model's facts say."""
    flags = config.flags
    facts = _facts(config.model.name)
    asked = METHODS.get(str(flags.get("quantization") or ""))
    stored = facts.quantization if facts is not None else None
    method = asked or stored
    computed = _width(flags.get("dtype"), facts.dtype if facts is not None else None)
    kv = flags.get("kv_cache_dtype") or (stored.kv_cache_dtype if stored is not None else None)
    return (method.bits if method is not None else computed, min(computed, _width(kv, None)), computed)


def changes(config: Config, reference: Config) -> tuple[str, ...]:
    """Differences from the reference that can change answers, in words."""
    changed = list(precision_of(config).changes(precision_of(reference)))
    named = ("model", "revision", "quantization", "kv_cache_dtype", "dtype")
    for name, value in other_settings(answer_settings(config), answer_settings(reference)).items():
        if name in named:
            continue
        if name == "speculative_config":
            changed.append("speculation" if value is not None else "no speculation")
        elif name in ("engine", "engine_version"):
            changed.append(f"engine {value}" if value is not None else "another engine build")
        else:
            changed.append(f"{name} {value if isinstance(value, str) else json.dumps(value)}")
    return tuple(dict.fromkeys(changed))


def _facts(model: str) -> ModelFacts | None:
    try:
        return model_facts(model)
    except FactsError:
        return None


def _width(value: object, stored: str | None) -> float:
    """Bits of a number format; 16 for `auto` and whatever is not known."""
    word = str(value or "auto").casefold()
    word = stored or word if word == "auto" else word
    return next((width for start, width in _WIDTHS.items() if word.startswith(start)), _SIXTEEN)


def with_reference_first(spec: SweepSpec, plans: Sequence[Plan]) -> tuple[SweepSpec, tuple[str, ...]]:
    """The spec with its reference among the baselines, which are launched first, and what is compared, in words.

    A plan in which nothing that differs can change answers has no need of one.
    """
    quality = spec.quality
    if quality is False or spec.endpoint is not None:
        return spec, ()
    baseline, notes = list(spec.search.baseline), []
    for plan in plans:
        chosen = choose_reference(plan, quality)
        alike = {planned.answers for planned in _comparable(plan, chosen)}
        if chosen is None or len(alike) < 2:
            continue
        first = {planned.answers for planned in plan.feasible if planned.config.name in baseline}
        if chosen.planned.answers not in first:
            baseline.append(chosen.planned.config.name)
        notes.append(
            f"{plan.hardware}: answers are compared with those of {chosen.planned.config.name} ({chosen.why}); "
            f"{len(alike) - 1} of {len(alike)} groups of configs may answer otherwise"
        )
    if baseline == list(spec.search.baseline):
        return spec, tuple(notes)
    search = spec.search.model_copy(update={"baseline": tuple(baseline)})
    return spec.model_copy(update={"search": search}), tuple(notes)


def _comparable(plan: Plan, reference: ReferenceChoice | None) -> list[PlannedConfig]:
    """The plan's configs whose answers can be compared with the reference's: those of its model, in any format."""
    if reference is None:
        return list(plan.feasible)
    own = reference.planned.config.model.name
    return [planned for planned in plan.feasible if not are_other_models(planned.config.model.name, own)]


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
    """Measurements of one plan's launches and their verdicts; `recorded` is a reference from a file."""

    def __init__(self, plan: Plan, spec: QualitySpec, recorded: QualityPasses | None = None) -> None:
        self._plan = plan
        self._spec = spec
        self._recorded = recorded
        self.reference: ReferenceChoice | None = None if recorded is not None else choose_reference(plan, spec)
        self._alike: dict[str, list[PlannedConfig]] = {}
        for planned in _comparable(plan, self.reference):
            self._alike.setdefault(planned.answers or planned.config.config_id, []).append(planned)
        self._key = {planned.config.config_id: key for key, alike in self._alike.items() for planned in alike}

    @property
    def is_needed(self) -> bool:
        """Whether any config may answer otherwise than the reference."""
        if self._recorded is not None:
            return bool(self._alike)
        return self.reference is not None and len(self._alike) > 1

    @property
    def words(self) -> str:
        """The reference and why it is that one."""
        if self.reference is None:
            return f"recorded answers of {self._spec.reference}"
        return f"{self.reference.planned.config.name} ({self.reference.why})"

    def job(self, config_id: str, launches: Sequence[MeasuredLaunch]) -> QualityJob | None:
        """The measurement of the next launch of a config; None: none, others have shown it."""
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
