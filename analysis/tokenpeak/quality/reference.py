"""Reference of a plan: the config whose answers all others are compared with, and what others have otherwise.

Declared, or of production's and the defaults the one of higher precision. Of a plan without these it is the config of
the highest precision that changes the fewest settings which can change answers. Whatever answers as it does can stand
for it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import FactsError, PlanError, suggestion
from tokenpeak.plan.baseline import DEFAULTS, PRODUCTION
from tokenpeak.predict.config_json import METHODS
from tokenpeak.predict.model import ModelFacts, model_facts
from tokenpeak.ranking.precision import precision_of
from tokenpeak.records import Config, Plan, PlannedConfig
from tokenpeak.spec.quality import QualitySpec
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
    if not known or reference_file(spec) is not None:
        return None
    if spec.reference is not None:
        if spec.reference not in known:
            words = f"quality.reference is {spec.reference!r}. {suggestion(spec.reference, known)}"
            raise PlanError(f"{words} Name a config that is feasible on {plan.hardware}, or a .json file of answers.")
        return ReferenceChoice(planned=known[spec.reference], why="declared")
    served = [known[name] for name in (PRODUCTION, DEFAULTS) if name in known]
    if served:
        best = max(served, key=lambda planned: precision_bits(planned.config))
        why = "what runs now" if best.config.name == PRODUCTION else "vLLM's defaults"
        if len(served) == 2 and precision_bits(served[0].config) != precision_bits(served[1].config):
            why += ", of higher precision than the other of production and defaults"
        return ReferenceChoice(planned=best, why=why)
    first = min(
        plan.feasible,
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
    """What a config has otherwise than the reference that can change answers, in words."""
    found = list(precision_of(config).changes(precision_of(reference)))
    said = ("model", "revision", "quantization", "kv_cache_dtype", "dtype")
    for name, value in other_settings(answer_settings(config), answer_settings(reference)).items():
        if name in said:
            continue
        if name == "speculative_config":
            found.append("speculation" if value is not None else "no speculation")
        elif name in ("engine", "engine_version"):
            found.append(f"engine {value}" if value is not None else "another engine build")
        else:
            found.append(f"{name} {value if isinstance(value, str) else json.dumps(value)}")
    return tuple(dict.fromkeys(found))


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
        alike = {planned.answers for planned in plan.feasible}
        chosen = choose_reference(plan, quality)
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
