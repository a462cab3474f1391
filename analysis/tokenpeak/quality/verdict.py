"""Quality verdict of a launch: pass, fail or unknown, by a bootstrap over prompts against noise floor + margin.

Three divergences are judged, each by its interval and never by its mean: of prefill from the reference, of decoding
from the launch's own prefill, and the regret of the generated tokens. Prompts are resampled within their kind, as the
set holds a fixed number of each. Tasks can fail a launch, by an exact paired test; they never block a pass.
"""

from collections.abc import Sequence
from math import comb, exp
from statistics import fmean

import numpy as np

from tokenpeak.quality.agreement import coverage
from tokenpeak.records import QUALITY_FAILED, QUALITY_UNKNOWN, Reason
from tokenpeak.records.quality import (
    PromptQuality,
    QualityInterval,
    QualityMeasurement,
    QualityReference,
    QualityStatus,
    QualityVerdict,
)

FEWEST_PROMPTS = 24
RESAMPLES = 4000
CONFIDENCE = 0.99
"""Of each of the three intervals: together they are wrong at most 3 times in 100."""
TASKS_LEVEL = 0.01
LEAST_COVERAGE = 0.5
"""Of the reference's probability, so much must lie in what is returned, or a divergence can hide in the rest."""


def judge(measured: QualityMeasurement, reference: QualityReference, margin_nats: float) -> QualityVerdict:
    """The verdict on one launch; unknown where too little was measured to say."""
    floor = {prompt.name: prompt for prompt in reference.floor.prompts}
    prompts = [prompt for prompt in measured.prompts if prompt.name in floor]

    def verdict(status: QualityStatus, reason: str, **figures: object) -> QualityVerdict:
        return QualityVerdict.model_validate(
            {"status": status, "reason": reason, "margin_nats": margin_nats, "prompts": len(prompts), **figures}
        )

    if measured.problem is not None:
        return verdict("unknown", measured.problem)
    if len(prompts) < FEWEST_PROMPTS:
        return verdict("unknown", f"{len(prompts)} prompts were measured; a verdict needs {FEWEST_PROMPTS}.")
    pairs = [(prompt, floor[prompt.name]) for prompt in prompts]
    kinds = [prompt.kind for prompt in prompts]
    decodes = [
        (ours.decode_kl_nats, theirs.decode_kl_nats)
        for ours, theirs in pairs
        if ours.decode_kl_nats is not None and theirs.decode_kl_nats is not None
    ]
    kl = interval([ours.kl_nats - theirs.kl_nats for ours, theirs in pairs], kinds)
    regret = interval([ours.decode_regret_nats - theirs.decode_regret_nats for ours, theirs in pairs], kinds)
    decode = interval([ours - theirs for ours, theirs in decodes], kinds) if len(decodes) == len(pairs) else None
    right, reference_right, p_worse = _tasks(pairs)
    figures = {
        "kl": kl,
        "decode_kl": decode,
        "decode_regret": regret,
        "top1_agreement": fmean(prompt.top1_agreement for prompt in prompts),
        "perplexity_ratio": exp(min(50.0, fmean(prompt.log_ratio_nats for prompt in prompts))),
        "tasks_right": right,
        "reference_tasks_right": reference_right,
    }
    judged = {"prefill's divergence from the reference": kl, "the generated tokens' regret": regret}
    if decode is not None:
        judged["decoding's divergence from prefill"] = decode
    for what, found in judged.items():
        if found.low > margin_nats:
            return verdict("fail", f"{_first_capital(what)} is {_words(found)}, above {margin_nats:g}.", **figures)
    if p_worse < TASKS_LEVEL:
        words = f"{right} of {len(prompts)} tasks are right, {reference_right} of the reference's (p = {p_worse:.2g})."
        return verdict("fail", words, **figures)
    covered = fmean(coverage(answer.scores) for answer in reference.answers)
    if covered < LEAST_COVERAGE:
        words = f"The likeliest tokens hold {covered:.0%} of the reference's probability: its answers are noise."
        return verdict("unknown", words, **figures)
    if decode is None:
        return verdict("unknown", "The engine gave no log-probabilities with the tokens it generated.", **figures)
    for what, found in judged.items():
        if found.high >= margin_nats:
            words = f"{_first_capital(what)} is {_words(found)}; {margin_nats:g} is within the interval."
            return verdict("unknown", words, **figures)
    return verdict("pass", f"Divergence from the reference is {_words(kl)}, below {margin_nats:g}.", **figures)


def quality_reasons(verdict: QualityVerdict) -> tuple[Reason, ...]:
    """Why runs of a launch with this verdict are not ranked, however fast they are; none where it passed."""
    if verdict.status == "pass":
        return ()
    if verdict.status == "fail":
        return (Reason(code=QUALITY_FAILED, text=f"Its answers are worse than the reference's. {verdict.reason}"),)
    return (Reason(code=QUALITY_UNKNOWN, text=f"Its answers are not known to be right. {verdict.reason}"),)


def interval(values: Sequence[float], kinds: Sequence[str]) -> QualityInterval:
    """The mean with its percentile interval, of values resampled within their kind; the same for the same values."""
    random = np.random.default_rng(0)
    array, labels = np.asarray(values, dtype=float), np.asarray(kinds)
    sums = np.zeros(RESAMPLES)
    for kind in sorted(set(kinds)):
        own = array[labels == kind]
        sums += random.choice(own, size=(RESAMPLES, len(own))).sum(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(sums / len(array), [tail, 1 - tail])
    return QualityInterval(estimate=float(array.mean()), low=float(low), high=float(high))


def paired_test(worse: int, better: int) -> float:
    """The probability of at least `worse` of `worse + better` changes being for the worse by chance (exact McNemar)."""
    n = worse + better
    return float(sum(comb(n, k) for k in range(worse, n + 1)) / 2**n)


def _tasks(pairs: Sequence[tuple[PromptQuality, PromptQuality]]) -> tuple[int, int, float]:
    """How many tasks are right, of the launch and of the reference, and the paired test's probability."""
    worse = sum(theirs.right and not ours.right for ours, theirs in pairs)
    better = sum(ours.right and not theirs.right for ours, theirs in pairs)
    right, reference_right = sum(ours.right for ours, _ in pairs), sum(theirs.right for _, theirs in pairs)
    return right, reference_right, paired_test(worse, better)


def _words(found: QualityInterval) -> str:
    return f"{found.estimate:.4f} nats a token ({found.low:.4f} to {found.high:.4f})"


def _first_capital(text: str) -> str:
    return text[0].upper() + text[1:]
