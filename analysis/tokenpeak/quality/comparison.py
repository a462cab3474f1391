"""Comparison of a launch's answers with the reference's: an agreement for each text and answer that both have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.quality.agreement import AnswerAgreement, TextAgreement, answer_agreement, text_agreement
from tokenpeak.records.quality import GeneratedAnswer, QualityAnswers


@dataclass(frozen=True, kw_only=True)
class LaunchComparison:
    """Agreements by name; `problem` says why there are none."""

    texts: Mapping[str, TextAgreement]
    answers: Mapping[str, AnswerAgreement]
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The reference's disagreement with itself, by text and by answer, in nats a token: means over comparisons."""

    text_kl: Mapping[str, float]
    answer_kl: Mapping[str, float]
    regret: Mapping[str, float]
    batches: int
    """Comparisons with another batch of the same launch."""
    launches: int
    """Comparisons with another launch."""


def compare(reference: QualityAnswers, launch: QualityAnswers) -> LaunchComparison:
    """How a launch's answers agree with the reference's, where the same was asked in the same tokens."""
    if reference.prompt_set != launch.prompt_set:
        words = "Another release of TokenPeak asked the reference other questions: record the reference anew."
        return LaunchComparison(texts={}, answers={}, problem=words)
    ours = {text.name: text for text in reference.texts}
    texts = {
        text.name: text_agreement(ours[text.name], text)
        for text in launch.texts
        if text.name in ours and text.tokens == ours[text.name].tokens
    }
    known = {answer.name: answer for answer in reference.answers}
    answers = {
        answer.name: answer_agreement(known[answer.name], answer) for answer in launch.answers if answer.name in known
    }
    problem = None
    if len(texts) < len(ours) / 2:
        problem = "It takes texts apart into other tokens than the reference, so that only tasks can be compared."
    return LaunchComparison(texts=texts, answers=answers, problem=problem)


def floor_of(reference: QualityAnswers, again: Sequence[QualityAnswers], others: Sequence[QualityAnswers]) -> Floor:
    """The noise floor: `again` holds other batches of the reference's launch, `others` further launches of it."""
    found = [compare(reference, each) for each in (*again, *others)]

    def means(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
        names = dict.fromkeys(name for each in values for name in each)
        return {name: fmean(each[name] for each in values if name in each) for name in names}

    return Floor(
        text_kl=means([{name: each.kl_nats for name, each in one.texts.items()} for one in found]),
        answer_kl=means([{name: each.kl_nats for name, each in one.answers.items()} for one in found]),
        regret=means([{name: each.regret_nats for name, each in one.answers.items()} for one in found]),
        batches=len(again),
        launches=len(others),
    )


def kinds_of(answers: Sequence[GeneratedAnswer]) -> dict[str, str]:
    """Answer's name → its kind."""
    return {answer.name: answer.kind for answer in answers}
