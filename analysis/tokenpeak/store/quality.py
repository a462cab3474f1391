"""Quality columns of trials and configs."""

from math import exp

from tokenpeak.records.quality import AnswersQuality, QualityInterval, QualityMeasurement, QualityVerdict
from tokenpeak.store.columns import canonical_json


def trial_quality(found: AnswersQuality | None, measured: QualityMeasurement | None) -> dict[str, object]:
    """A trial's columns: the verdict on its config's answers, and what measuring those of its own launch took."""
    kl = _interval("quality_kl", found.verdict.kl if found is not None else None, "_nats")
    return {
        **_verdict(found),
        **kl,
        "quality_top1_agreement": _estimate(found, "top1_agreement"),
        "quality_perplexity_ratio": _ratio(_estimate(found, "log_ratio")),
        "quality_duration_s": measured.duration_s if measured is not None else None,
        "quality_problem": measured.problem if measured is not None else None,
        "quality_accepted_tokens": measured.accepted_tokens if measured is not None else None,
        "quality_cached_tokens": measured.cached_tokens if measured is not None else None,
    }


def config_quality(found: AnswersQuality | None) -> dict[str, object]:
    """A config's columns; all null where nothing that could change its answers was measured, or had to be."""
    verdict = found.verdict if found is not None else None
    ratio = verdict.log_ratio if verdict is not None else None
    return {
        **_verdict(found),
        "quality_is_reference": found.is_reference if found is not None else None,
        "quality_changes": list(found.changes) if found is not None else [],
        **_interval("quality_kl", verdict.kl if verdict is not None else None, "_nats"),
        **_interval("quality_answer_kl", verdict.answer_kl if verdict is not None else None, "_nats"),
        **_interval("quality_long_kl", verdict.long_kl if verdict is not None else None, "_nats"),
        "quality_top1_agreement": _estimate(found, "top1_agreement"),
        "quality_perplexity_ratio": _ratio(ratio.estimate if ratio is not None else None),
        "quality_perplexity_ratio_low": _ratio(ratio.low if ratio is not None else None),
        "quality_perplexity_ratio_high": _ratio(ratio.high if ratio is not None else None),
        "quality_same_answers": verdict.same_answers if verdict is not None else None,
        "quality_tasks": verdict.tasks if verdict is not None else None,
        "quality_tasks_right": verdict.tasks_right if verdict is not None else None,
        "quality_reference_tasks_right": verdict.reference_tasks_right if verdict is not None else None,
        "quality_margin_nats": verdict.margin_nats if verdict is not None else None,
        "quality_examples": _examples(verdict),
    }


def _verdict(found: AnswersQuality | None) -> dict[str, object]:
    return {
        "quality": found.verdict.status if found is not None else None,
        "quality_reason": found.verdict.reason if found is not None else None,
    }


def _interval(name: str, found: QualityInterval | None, unit: str) -> dict[str, object]:
    return {
        f"{name}{unit}": found.estimate if found is not None else None,
        f"{name}_low{unit}": found.low if found is not None else None,
        f"{name}_high{unit}": found.high if found is not None else None,
    }


def _estimate(found: AnswersQuality | None, name: str) -> float | None:
    interval: QualityInterval | None = getattr(found.verdict, name) if found is not None else None
    return interval.estimate if interval is not None else None


def _ratio(log_ratio: float | None) -> float | None:
    return exp(max(-50.0, min(50.0, log_ratio))) if log_ratio is not None else None


def _examples(verdict: QualityVerdict | None) -> str:
    return canonical_json([each.model_dump() for each in verdict.examples] if verdict is not None else [])
