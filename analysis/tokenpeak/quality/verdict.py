"""Quality verdict of a launch: pass, fail or unknown, by intervals over prompts against noise floor + margin.

Judged are the divergence of prefill over the texts, of decoding over the answers, and the regret of the tokens that
were generated; of the long context also alone, for damage that short prompts do not show. A launch passes where all
intervals lie below the margin, and fails where one lies above it. Tasks can fail a launch, by an exact paired test;
they never block a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.quality.agreement import coverage
from tokenpeak.quality.comparison import Floor, LaunchComparison, compare
from tokenpeak.quality.interval import few_values, interval
from tokenpeak.quality.paired import LEVEL, mcnemar
from tokenpeak.quality.prompts import LONG_CONTEXT, questions
from tokenpeak.records.quality import (
    QualityAnswers,
    QualityExample,
    QualityInterval,
    QualityStatus,
    QualityVerdict,
)

FEWEST_TEXTS = 24
LONG_SHARE = 1 / 3
"""That the answers over a long context weigh among all: far more than their number."""
LEAST_COVERAGE = 0.5
"""Of the reference's probability, so much must lie in what is returned, or a divergence can hide in the rest."""
EXAMPLES = 5
_SHOWN_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a reference config answered, and its noise floor."""

    answers: QualityAnswers
    floor: Floor


def judge(
    answers: QualityAnswers | None, problem: str | None, reference: Reference, margin_nats: float
) -> QualityVerdict:
    """The verdict on one launch; unknown where too little was measured to say, such as for a `problem`."""
    if answers is None:
        words = problem or "Its answers were not measured."
        return QualityVerdict(status="unknown", reason=words, margin_nats=margin_nats)
    found = compare(reference.answers, answers)
    figures = _figures(found, reference, answers, margin_nats)
    status, reason = _decided(figures, found, reference)
    return figures.model_copy(update={"status": status, "reason": reason})


def _decided(figures: QualityVerdict, found: LaunchComparison, reference: Reference) -> tuple[QualityStatus, str]:
    """Status and reason: what fails goes before what is not known."""
    margin = figures.margin_nats
    judged = {
        "Divergence from the reference": figures.kl,
        "Divergence of generated answers": figures.answer_kl,
        "Regret of generated tokens": figures.regret,
    }
    for what, each in (*judged.items(), ("Divergence over a long context", figures.long_kl)):
        if each is not None and each.low > margin:
            return "fail", f"{what} is {_words(each)}, above {margin:g}."
    if figures.tasks_p is not None and figures.tasks_p < LEVEL:
        return "fail", (
            f"{figures.tasks_right} of {figures.tasks} tasks are right, {figures.reference_tasks_right} of the "
            f"reference's (p = {figures.tasks_p:.2g})."
        )
    if found.problem is not None:
        return "unknown", found.problem
    if figures.texts < FEWEST_TEXTS or not figures.answers:
        words = f"{figures.texts} texts and {figures.answers} answers can be compared; {FEWEST_TEXTS} are needed."
        return "unknown", words
    covered = fmean(coverage(text.scores) for text in reference.answers.texts)
    if covered < LEAST_COVERAGE:
        return "unknown", (
            f"The likeliest tokens hold {covered:.0%} of the reference's probability: its answers are noise."
        )
    for what, each in judged.items():
        if each is None or each.high >= margin:
            words = _words(each) if each is not None else "not known"
            return "unknown", f"{what} is {words}; {margin:g} is within the interval."
    assert figures.kl is not None, "it was judged"
    return "pass", f"Divergence from the reference is {_words(figures.kl)}, below {margin:g}."


def _figures(
    found: LaunchComparison, reference: Reference, answers: QualityAnswers, margin_nats: float
) -> QualityVerdict:
    """All figures, of a verdict that is not yet given."""
    floor = reference.floor
    texts, named = list(found.texts), list(found.answers)
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

    answer_kl = [found.answers[name].kl_nats - floor.answer_kl.get(name, 0.0) for name in named]
    long = [value for value, kind in zip(answer_kl, kinds, strict=True) if kind == LONG_CONTEXT]
    worse, better, pairs = _changed(reference.answers, answers)
    return QualityVerdict(
        status="unknown",
        reason="",
        margin_nats=margin_nats,
        texts=len(texts),
        answers=len(named),
        kl=over_texts([found.texts[name].kl_nats - floor.text_kl.get(name, 0.0) for name in texts]),
        answer_kl=over_answers(answer_kl),
        long_kl=few_values(long) if long else None,
        regret=over_answers([found.answers[name].regret_nats - floor.regret.get(name, 0.0) for name in named]),
        log_ratio=over_texts([found.texts[name].log_ratio_nats for name in texts]),
        top1_agreement=over_texts([found.texts[name].top1 for name in texts]),
        same_answers=fmean(found.answers[name].is_same for name in named) if named else None,
        tasks=len(pairs),
        tasks_right=sum(own for _, own in pairs) if pairs else None,
        reference_tasks_right=sum(theirs for theirs, _ in pairs) if pairs else None,
        tasks_p=mcnemar(worse, better) if pairs else None,
        examples=_examples(found, reference, answers),
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


def _examples(found: LaunchComparison, reference: Reference, answers: QualityAnswers) -> tuple[QualityExample, ...]:
    """The questions whose answers differ most."""
    asked = {question.name: question.text for question in questions()}
    ours = {answer.name: answer for answer in reference.answers.answers}
    theirs = {answer.name: answer for answer in answers.answers}
    differing = [name for name, each in found.answers.items() if not each.is_same]
    ranked = sorted(differing, key=lambda name: -found.answers[name].kl_nats)[:EXAMPLES]
    return tuple(
        QualityExample(
            name=name,
            kind=theirs[name].kind,
            question=asked.get(name, "")[-_SHOWN_CHARS:],
            reference_answer=ours[name].text[:_SHOWN_CHARS],
            answer=theirs[name].text[:_SHOWN_CHARS],
            kl_nats=found.answers[name].kl_nats,
            right=theirs[name].right,
            reference_right=ours[name].right,
        )
        for name in ranked
    )


def _words(found: QualityInterval) -> str:
    return f"{found.estimate:.4f} nats a token ({found.low:.4f} to {found.high:.4f})"
