"""Answers of launches: how far two agree, their files and lm-eval's, and trials whose answers did not pass.

Two scores of the same tokens agree by KL divergence over the returned top-k, top-1, and change of log-likelihood.

An engine returns the likeliest tokens of a place, not the whole distribution. Whatever is not returned is taken
together as one outcome: by the log-sum inequality that can only make the divergence smaller, so it is a lower bound.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

import zstandard
from pydantic import ValidationError

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError, LoadError
from tokenpeak.paths import shown
from tokenpeak.records import QUALITY_FAILED, QUALITY_UNKNOWN, Reason, TrialRecord
from tokenpeak.records.quality import (
    AnswersQuality,
    GeneratedAnswer,
    QualityAnswers,
    QualityPasses,
    QualityVerdict,
    ScoredText,
    SweepQuality,
    TopK,
)

TOP_K = 20
"""vLLM returns at most so many unless max_logprobs is raised."""
UNLIKELY = -12.0
"""Log-probabilities below this are kept only of the token that stands there: together they are as good as nothing."""
_SMALLEST = 1e-6
"""Probabilities below this are rounding."""
PACKED = ".zst"
LM_EVAL_METRICS = ("exact_match", "acc", "acc_norm")
_SAMPLES_FILE = re.compile(r"samples_(?P<task>.+?)(?:_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl")


@dataclass(frozen=True, kw_only=True)
class TextAgreement:
    """Of one text, as means over its places after the first."""

    kl_nats: float
    """Lower bound of the divergence of the launch's prefill from the reference's."""
    top1: float
    """Share of places whose likeliest token is the reference's likeliest."""
    log_ratio_nats: float
    """By how much less likely the text is to the launch."""


@dataclass(frozen=True, kw_only=True)
class AnswerAgreement:
    """Of one answer to a question."""

    kl_nats: float
    """Lower bound of the divergence of the launch's decoding from the reference's: the mean over tokens up to the first
    that differs from the reference's, that one included."""
    regret_nats: float
    """By how much less likely the launch's tokens are than the likeliest of their places, to the launch itself: the
    mean over all of them. Greedy decoding has none, unless drafts are taken that are not the model's."""
    is_same: bool


def text_agreement(reference: ScoredText, launch: ScoredText) -> TextAgreement:
    """How a launch scored a text whose tokens are the same."""
    places = list(zip(reference.tokens[1:], reference.scores, launch.scores, strict=True))
    return TextAgreement(
        kl_nats=fmean(kl_lower_bound(ours, theirs) for _, ours, theirs in places),
        top1=fmean(same_top1(ours, theirs) for _, ours, theirs in places),
        log_ratio_nats=fmean(ours[token] - theirs[token] for token, ours, theirs in places),
    )


def answer_agreement(reference: GeneratedAnswer, launch: GeneratedAnswer) -> AnswerAgreement:
    """How a launch answered a question; after the first token that differs nothing can be compared."""
    pairs = list(zip(reference.tokens, launch.tokens, strict=False))
    same = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), len(pairs))
    compared = min(same + 1, len(pairs))
    return AnswerAgreement(
        kl_nats=fmean(map(kl_lower_bound, reference.scores[:compared], launch.scores[:compared])),
        regret_nats=fmean(
            max(score.values()) - score[token] for token, score in zip(launch.tokens, launch.scores, strict=True)
        ),
        is_same=reference.tokens == launch.tokens,
    )


def kl_lower_bound(reference: TopK, launch: TopK) -> float:
    """The least divergence, in nats, of `launch` from `reference` that what both returned allows; 0 or more.

    A token that only the reference returned has at most the probability of the launch's last returned one.
    """
    shared = reference.keys() & launch.keys()
    total = sum(exp(reference[token]) * (reference[token] - launch[token]) for token in shared)
    p_only = sum(exp(reference[token]) for token in reference.keys() - shared)
    p_rest = max(0.0, 1.0 - sum(map(exp, reference.values())))
    q_left = max(0.0, 1.0 - sum(exp(launch[token]) for token in shared))
    lumped = _term(p_only + p_rest, q_left)
    q_most = (len(reference) - len(shared)) * exp(_last_returned(launch)) if launch else q_left
    p_left = p_only + p_rest
    if p_only <= 0 or p_left <= 0 or q_left * p_only / p_left <= q_most:
        return max(0.0, total + lumped)
    return max(0.0, total + _term(p_only, q_most) + _term(p_rest, q_left - q_most))


def coverage(scores: Iterable[TopK]) -> float:
    """The mean probability that the returned tokens hold together, 0 to 1."""
    return fmean(min(1.0, sum(map(exp, score.values()))) for score in scores)


def same_top1(reference: TopK, launch: TopK) -> bool:
    """Whether both find the same token likeliest; tokens that are equally likely count as the same."""
    best = max(reference, key=reference.__getitem__)
    return best in launch and launch[best] >= max(launch.values()) - _SMALLEST


def _last_returned(score: TopK) -> float:
    """Log-probability of a token not returned, at most: that of the TOP_K-th, or too little to be kept."""
    last = sorted(score.values(), reverse=True)[TOP_K - 1] if len(score) >= TOP_K else UNLIKELY
    return max(last, UNLIKELY)


def _term(p: float, q: float) -> float:
    return p * log(p / max(q, _SMALLEST)) if p > _SMALLEST else 0.0


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
    comparisons = [compare(reference, each) for each in (*again, *others)]

    def means(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
        names = dict.fromkeys(name for each in values for name in each)
        return {name: fmean(each[name] for each in values if name in each) for name in names}

    return Floor(
        text_kl=means([{name: each.kl_nats for name, each in one.texts.items()} for one in comparisons]),
        answer_kl=means([{name: each.kl_nats for name, each in one.answers.items()} for one in comparisons]),
        regret=means([{name: each.regret_nats for name, each in one.answers.items()} for one in comparisons]),
        batches=len(again),
        launches=len(others),
    )


def with_verdict(trial: TrialRecord, quality: SweepQuality | None) -> TrialRecord:
    """The trial; where its config's answers did not pass, its runs have that as a reason not to be ranked."""
    answers = verdict_of(quality, trial.hardware, trial.config.config_id)
    reasons = quality_reasons(answers.verdict) if answers is not None else ()
    if not reasons:
        return trial
    runs = tuple(run.model_copy(update={"verdict": run.verdict.with_reasons(reasons)}) for run in trial.runs)
    return trial.model_copy(update={"runs": runs})


def verdict_of(quality: SweepQuality | None, hardware: str, config_id: str) -> AnswersQuality | None:
    """The verdict on a config's answers; None where there is none yet, or nothing was to be measured."""
    for each in quality.verdicts if quality is not None else ():
        if each.hardware == hardware and config_id in each.config_ids:
            return each
    return None


def quality_reasons(verdict: QualityVerdict) -> tuple[Reason, ...]:
    """Why runs of a launch with this verdict are not ranked, however fast they are; none where it passed."""
    if verdict.status == "pass":
        return ()
    if verdict.status == "fail":
        return (Reason(code=QUALITY_FAILED, text=f"Its answers are worse than the reference's. {verdict.reason}"),)
    return (Reason(code=QUALITY_UNKNOWN, text=f"Its answers are not known to be right. {verdict.reason}"),)


def read_passes(path: Path) -> QualityPasses:
    """The answers in a file; raises ArchiveError for a file that holds none."""
    data = bounded.read_bytes(path)
    if path.name.endswith(PACKED):
        data = bounded.unpacked(data, path, bounded.largest_bytes())
    bounded.parse_json(data, path)
    try:
        content = QualityPasses.model_validate_json(data)
    except ValidationError as error:
        raise ArchiveError(f"{path} holds no answers that `tokenpeak quality record` or a sweep wrote.") from error
    if not content.passes:
        raise ArchiveError(f"{path} holds no answers.")
    return content


def written(passes: QualityPasses, path: Path) -> bytes:
    """The content of a file of this name."""
    data = passes.model_dump_json().encode()
    return zstandard.ZstdCompressor(level=12).compress(data) if path.name.endswith(PACKED) else data + b"\n"


def read_lm_eval(path: Path, metric: str | None = None) -> dict[tuple[str, str], bool]:
    """(task, sample) → whether it was answered right, of all files of `lm-eval --log_samples` at or below a path.

    A sample that several filters took apart counts for each. Raises LoadError for a path without samples, or without
    the metric.
    """
    files = [path] if path.is_file() else sorted(path.rglob("samples_*.jsonl"))
    answers: dict[tuple[str, str], bool] = {}
    for file in files:
        match = _SAMPLES_FILE.fullmatch(file.name)
        task = match["task"] if match is not None else file.stem
        for number, line in enumerate(bounded.read_bytes(file, error=LoadError).splitlines(), start=1):
            if not line.strip():
                continue
            sample = bounded.parse_json(line, f"{file}, line {number}", error=LoadError)
            if not isinstance(sample, dict) or "doc_id" not in sample:
                raise LoadError(f"{file}, line {number}: no sample of lm-eval, which has a doc_id.")
            name = f"{sample['doc_id']} {sample.get('filter', '')}".strip()
            answers[task, name] = _right(sample, metric, f"{file}, line {number}")
    if not answers:
        raise LoadError(f"{path} has no samples: run lm-eval with --log_samples and give its output folder.")
    return answers


def _right(sample: Mapping[str, Any], metric: str | None, where: str) -> bool:
    names = LM_EVAL_METRICS if metric is None else (metric,)
    for name in names:
        value = sample.get(name)
        if value in (0, 1):
            return bool(value)
    raise LoadError(
        f"{where}: no {' or '.join(map(shown, names))} of 0 or 1; name the metric that says right or wrong."
    )
