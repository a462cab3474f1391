"""Quality verdict of a launch: pass, fail or unknown, by intervals over prompts against noise floor + margin.

Judged are the divergence of prefill over the texts, of decoding over the answers, and the regret of the tokens that
were generated; of the long context also alone, for damage that short prompts do not show. A launch passes where all
intervals lie below the margin, and fails where one lies above it. Tasks can fail a launch, by an exact paired test;
they never block a pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, sqrt
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from tokenpeak.quality.answers import Floor, LaunchComparison, compare, coverage
from tokenpeak.quality.prompts import LONG_CONTEXT, questions
from tokenpeak.records.quality import (
    QualityAnswers,
    QualityExample,
    QualityInterval,
    QualityStatus,
    QualityVerdict,
)

RESAMPLES = 4000
CONFIDENCE = 0.99
LEVEL = 0.01

Floats = NDArray[np.float64]


def interval(
    values: Sequence[float], kinds: Sequence[str], weights: Mapping[str, float] | None = None
) -> QualityInterval:
    """The mean of the kinds' means with its interval; a kind weighs as given, else by its number.

    Values are resampled within their kind, as a set of prompts holds a fixed number of each. The same values give the
    same interval.
    """
    array, labels = np.asarray(values, dtype=float), np.asarray(kinds)
    own = {str(kind): array[labels == kind] for kind in sorted(set(kinds))}
    weigh = {kind: weights[kind] if weights else float(len(each)) for kind, each in own.items()}
    total = sum(weigh.values())
    mean, error = 0.0, 0.0
    means, errors = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for place, (kind, each) in enumerate(own.items()):
        share, count = weigh[kind] / total, len(each)
        middle = float(each.mean())
        off = each - middle
        drawn = _drawn(count, place)
        moved = drawn @ off / count
        mean += share * middle
        means += share * (middle + moved)
        if count > 1:
            error += share**2 * float(off @ off) / (count - 1) / count
            errors += share**2 * np.maximum(0.0, drawn @ off**2 / count - moved**2) / (count - 1)
    # A resample of one value over and over has no error of its own: it says nothing, but for the mean that all share.
    usable = errors > 1e-6 * error
    if error <= 0 or not usable.any():
        return QualityInterval(estimate=mean, low=mean, high=mean)
    students = (means[usable] - mean) / np.sqrt(errors[usable])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(students, [tail, 1 - tail])
    half = float(np.sqrt(error))
    return QualityInterval(estimate=mean, low=mean - float(high) * half, high=mean - float(low) * half)


def few_values(values: Sequence[float]) -> QualityInterval:
    """The mean of some ten values, by percentiles: of skewed values the lower end is rather too low."""
    array = np.asarray(values, dtype=float)
    means = _drawn(len(array), 0) @ array / len(array)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return QualityInterval(estimate=float(array.mean()), low=float(low), high=float(high))


@lru_cache(maxsize=64)
def _drawn(count: int, place: int) -> Floats:
    """(RESAMPLES, count): how often each of so many values is drawn; the same for the same place among kinds."""
    random = np.random.default_rng((count, place))
    drawn: Floats = random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES).astype(float)
    return drawn


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Of samples that both answered: how many are right, and the verdict by the change."""

    status: QualityStatus
    reason: str
    samples: int
    right: int
    reference_right: int
    low: float
    high: float
    """Of the change of the share that is right."""


def paired(
    reference: Mapping[tuple[str, str], bool], candidate: Mapping[tuple[str, str], bool], *, margin: float
) -> Paired:
    """The comparison by (task, sample); `margin` is the share of answers that may be lost."""
    shared = reference.keys() & candidate.keys()
    worse = sum(reference[name] and not candidate[name] for name in shared)
    better = sum(candidate[name] and not reference[name] for name in shared)
    n, p = len(shared), mcnemar(worse, better)
    # Half a change more on each side: without it no change at all would have an interval of no width.
    change = (better - worse) / (n + 2)
    spread = sqrt(max(0.0, better + worse + 1 - (better - worse) ** 2 / (n + 2))) / (n + 2)
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * spread
    low, high = change - half, change + half
    right, theirs = sum(candidate[name] for name in shared), sum(reference[name] for name in shared)
    words = (
        f"{right:,} of {n:,} samples are right, {theirs:,} of the reference's; {worse} became wrong and {better} right "
        f"({low:+.1%} to {high:+.1%})"
    )
    if n and p < LEVEL:
        status, why = "fail", f", p = {p:.2g}."
    elif n and low > -margin:
        status, why = "pass", f", less than {margin:.1%} lost."
    else:
        status, why = "unknown", f"; the interval holds a loss of {margin:.1%}." if n else "."
    return Paired(
        status=status,  # type: ignore[arg-type]
        reason=words + why,
        samples=n,
        right=right,
        reference_right=theirs,
        low=low,
        high=high,
    )


def mcnemar(worse: int, better: int) -> float:
    """The probability of at least `worse` of `worse + better` changes being for the worse by chance; exact."""
    n = worse + better
    return float(sum(comb(n, k) for k in range(worse, n + 1)) / 2**n)


FEWEST_TEXTS = 24
LONG_SHARE = 1 / 3
"""That the answers over a long context weigh among all: far more than their number."""
LEAST_COVERAGE = 0.5
"""Of the reference's probability, so much must lie in what is returned, or a divergence can hide in the rest."""
EXAMPLES = 5
_SHOWN_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A reference config's answers, and its noise floor."""

    answers: QualityAnswers
    floor: Floor


def judge(
    answers: QualityAnswers | None, problem: str | None, reference: Reference, margin_nats: float
) -> QualityVerdict:
    """The verdict on one launch; unknown where too little was measured to say, such as for a `problem`."""
    if answers is None:
        words = problem or "Its answers were not measured."
        return QualityVerdict(status="unknown", reason=words, margin_nats=margin_nats)
    comparison = compare(reference.answers, answers)
    figures = _figures(comparison, reference, answers, margin_nats)
    status, reason = _decided(figures, comparison, reference)
    return figures.model_copy(update={"status": status, "reason": reason})


def _decided(figures: QualityVerdict, comparison: LaunchComparison, reference: Reference) -> tuple[QualityStatus, str]:
    """Status and reason: what fails goes before what is not known."""
    margin = figures.margin_nats
    judged = {
        "Divergence from the reference": figures.kl,
        "Divergence of generated answers": figures.answer_kl,
        "Regret of generated tokens": figures.regret,
    }
    for figure, each in (*judged.items(), ("Divergence over a long context", figures.long_kl)):
        if each is not None and each.low > margin:
            return "fail", f"{figure} is {_words(each)}, above {margin:g}."
    if figures.tasks_p is not None and figures.tasks_p < LEVEL:
        return "fail", (
            f"{figures.tasks_right} of {figures.tasks} tasks are right, {figures.reference_tasks_right} of the "
            f"reference's (p = {figures.tasks_p:.2g})."
        )
    if comparison.problem is not None:
        return "unknown", comparison.problem
    if figures.texts < FEWEST_TEXTS or not figures.answers:
        words = f"{figures.texts} texts and {figures.answers} answers can be compared; {FEWEST_TEXTS} are needed."
        return "unknown", words
    covered = fmean(coverage(text.scores) for text in reference.answers.texts)
    if covered < LEAST_COVERAGE:
        return "unknown", (
            f"The likeliest tokens hold {covered:.0%} of the reference's probability: its answers are noise."
        )
    for figure, each in judged.items():
        if each is None or each.high >= margin:
            words = _words(each) if each is not None else "not known"
            return "unknown", f"{figure} is {words}; {margin:g} is within the interval."
    assert figures.kl is not None, "it was judged"
    return "pass", f"Divergence from the reference is {_words(figures.kl)}, below {margin:g}."


def _figures(
    comparison: LaunchComparison, reference: Reference, answers: QualityAnswers, margin_nats: float
) -> QualityVerdict:
    """All figures, of a verdict that is not yet given."""
    floor = reference.floor
    texts, named = list(comparison.texts), list(comparison.answers)
    text_kinds = [name.rpartition("-")[0] for name in texts]
    kind_of = {answer.name: answer.kind for answer in answers.answers}
    kinds = [kind_of[name] for name in named]
    short = sum(kind != LONG_CONTEXT for kind in kinds)
    weights = {
        kind: LONG_SHARE if kind == LONG_CONTEXT else (1 - LONG_SHARE) * kinds.count(kind) / short for kind in kinds
    }

    def over_texts(values: Sequence[float]) -> QualityInterval | None:
        return interval(values, text_kinds) if values else None

    def over_answers(values: Sequence[float]) -> QualityInterval | None:
        return interval(values, kinds, weights) if values else None

    answer_kl = [comparison.answers[name].kl_nats - floor.answer_kl.get(name, 0.0) for name in named]
    long = [value for value, kind in zip(answer_kl, kinds, strict=True) if kind == LONG_CONTEXT]
    worse, better, pairs = _changed(reference.answers, answers)
    return QualityVerdict(
        status="unknown",
        reason="",
        margin_nats=margin_nats,
        texts=len(texts),
        answers=len(named),
        kl=over_texts([comparison.texts[name].kl_nats - floor.text_kl.get(name, 0.0) for name in texts]),
        answer_kl=over_answers(answer_kl),
        long_kl=few_values(long) if long else None,
        regret=over_answers([comparison.answers[name].regret_nats - floor.regret.get(name, 0.0) for name in named]),
        log_ratio=over_texts([comparison.texts[name].log_ratio_nats for name in texts]),
        top1_agreement=over_texts([comparison.texts[name].top1 for name in texts]),
        same_answers=fmean(comparison.answers[name].is_same for name in named) if named else None,
        tasks=len(pairs),
        tasks_right=sum(own for _, own in pairs) if pairs else None,
        reference_tasks_right=sum(theirs for theirs, _ in pairs) if pairs else None,
        tasks_p=mcnemar(worse, better) if pairs else None,
        examples=_examples(comparison, reference, answers),
    )


def _changed(reference: QualityAnswers, launch: QualityAnswers) -> tuple[int, int, list[tuple[bool, bool]]]:
    """How many questions and tasks changed for the worse and for the better, and whether each was right in both."""
    theirs = _right(reference)
    pairs = [(theirs[name], right) for name, right in _right(launch).items() if name in theirs]
    worse, better = sum(ref and not own for ref, own in pairs), sum(own and not ref for ref, own in pairs)
    return worse, better, pairs


def _right(answers: QualityAnswers) -> dict[tuple[str, str], bool]:
    return {
        **{("built-in", answer.name): answer.right for answer in answers.answers},
        **{("task", task.name): task.right for task in answers.tasks},
    }


def _examples(
    comparison: LaunchComparison, reference: Reference, answers: QualityAnswers
) -> tuple[QualityExample, ...]:
    """The questions whose answers differ most."""
    asked = {question.name: question.text for question in questions()}
    ours = {answer.name: answer for answer in reference.answers.answers}
    theirs = {answer.name: answer for answer in answers.answers}
    differing = [name for name, each in comparison.answers.items() if not each.is_same]
    ranked = sorted(differing, key=lambda name: -comparison.answers[name].kl_nats)[:EXAMPLES]
    return tuple(
        QualityExample(
            name=name,
            kind=theirs[name].kind,
            question=asked.get(name, "")[-_SHOWN_CHARS:],
            reference_answer=ours[name].text[:_SHOWN_CHARS],
            answer=theirs[name].text[:_SHOWN_CHARS],
            kl_nats=comparison.answers[name].kl_nats,
            right=theirs[name].right,
            reference_right=ours[name].right,
        )
        for name in ranked
    )


def _words(estimate: QualityInterval) -> str:
    return f"{estimate.estimate:.4f} nats a token ({estimate.low:.4f} to {estimate.high:.4f})"
