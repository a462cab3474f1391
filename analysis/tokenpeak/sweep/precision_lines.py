"""Gain at equal precision, and with the change of precision and what that costs in quality, in lines for a terminal."""

from math import exp

from tokenpeak.quality.applied import verdict_of
from tokenpeak.ranking.objective import objective_direction
from tokenpeak.ranking.precision import precision_of
from tokenpeak.ranking.ties import Verdicts
from tokenpeak.records import Config, Plan
from tokenpeak.records.quality import AnswersQuality, SweepQuality
from tokenpeak.spec.sweep import SweepSpec


def precision_lines(
    spec: SweepSpec, plan: Plan, verdicts: Verdicts, recommended: Config, quality: SweepQuality | None
) -> list[str]:
    """Nothing where the recommended config has the baseline's precision, or no baseline gave a result."""
    configs = {planned.config.config_id: planned.config for planned in plan.feasible}
    ranked = [(configs[each.config], each.mean) for each in verdicts.standings if each.config in configs]
    by_name = {config.name: (config, mean) for config, mean in ranked}
    baseline = next((by_name[name] for name in spec.search.baseline if name in by_name), None)
    own = next((mean for config, mean in ranked if config.config_id == recommended.config_id), None)
    if baseline is None or own is None:
        return []
    theirs = precision_of(baseline[0])
    changes = precision_of(recommended).changes(theirs)
    if not changes:
        return []
    # Best first: the first of the baseline's precision is the best that changes none.
    best, mean = next((config, mean) for config, mean in ranked if precision_of(config) == theirs)
    against = baseline[0].name
    equal = (
        f"nothing tried beats {against}" if best.name == against else f"{best.name}, {_gain(spec, mean, baseline[1])}"
    )
    found = verdict_of(quality, plan.hardware, recommended.config_id)
    return [
        f"At equal precision with {against}: {equal}",
        f"With {' and '.join(changes)}: {_gain(spec, own, baseline[1])}; {quality_words(found)}",
    ]


def quality_words(found: AnswersQuality | None) -> str:
    """What a config's answers are worth, in a few words."""
    if found is None:
        return "its quality was not measured"
    words = {"pass": "quality passed", "fail": "quality failed", "unknown": "quality not proven"}[found.verdict.status]
    kl, ratio = found.verdict.kl, found.verdict.log_ratio
    if kl is None or ratio is None:
        return words
    return f"{words} ({kl.estimate:.4f} nats a token from the reference, perplexity × {exp(ratio.estimate):.4f})"


def _gain(spec: SweepSpec, value: float, baseline: float) -> str:
    """A gain in percent; of a metric that is to be low, how much lower."""
    change = value / baseline - 1
    return f"{change:+.1%}" + (" (lower is better)" if objective_direction(spec) == "lower" else "")
