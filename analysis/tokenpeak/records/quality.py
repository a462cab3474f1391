"""Quality of a config: what a launch answered, how far that is from the reference's answers, and whether it passes.

Divergences are in nats a token. A log-probability is natural; `TopK` holds those of the likeliest tokens of a place,
and of the token that stands there.
"""

from datetime import datetime
from typing import Literal

from tokenpeak.records.base import FORMAT_VERSION, PathName, Record

TopK = dict[int, float]
"""Token → log-probability."""
QualityStatus = Literal["pass", "fail", "unknown"]


class ScoredText(Record):
    """A text that the launch scored in prefill: its tokens, and the likeliest tokens of each place after the first."""

    name: str
    tokens: tuple[int, ...]
    scores: tuple[TopK, ...]


class GeneratedAnswer(Record):
    """The answer of a launch to a question, greedily, with the log-probabilities that decoding gave."""

    name: str
    kind: str
    prompt_tokens: int
    tokens: tuple[int, ...]
    scores: tuple[TopK, ...]
    text: str
    right: bool


class TaskResult(Record):
    """Whether an answer to one of the user's tasks was right."""

    name: str
    right: bool
    answer: str


class QualityAnswers(Record):
    """Everything that one launch answered, with `batch` requests at a time; what comparisons are made of."""

    format_version: int = FORMAT_VERSION
    recorded_at: datetime
    prompt_set: int
    """Version of the built-in texts and questions: only answers to the same are compared."""
    budget_tokens: int
    """About as many were to be processed: long questions are as long as they allow."""
    context: int
    """For which long questions were made."""
    model: str
    engine_version: str | None
    batch: int
    texts: tuple[ScoredText, ...]
    answers: tuple[GeneratedAnswer, ...]
    tasks: tuple[TaskResult, ...] = ()


class QualityPasses(Record):
    """Answers of one launch: a pass, and of a reference a second one, with fewer requests at a time."""

    format_version: int = FORMAT_VERSION
    passes: tuple[QualityAnswers, ...]


class QualityMeasurement(Record):
    """That a launch's answers were measured: how long it took and how many tokens, or why it broke off."""

    problem: str | None = None
    started_at: datetime | None = None
    duration_s: float = 0.0
    is_begun: bool = False
    """The engine answered something."""
    tokens: int = 0
    """Tokens that the engine processed for it."""
    cached_tokens: int | None = None
    """Of prompts, found in the prefix cache; None where the engine does not say."""
    accepted_tokens: int | None = None
    """Drafted tokens that were accepted; None where nothing drafts."""
    longest_prompt: int | None = None
    """Tokens of the longest prompt."""
    context: int | None = None
    """The longest prompt and answer that the engine takes."""


class QualityInterval(Record):
    """A mean over prompts with its 99% interval; a divergence is above the noise floor, in nats a token."""

    estimate: float
    low: float
    high: float


class QualityExample(Record):
    """A question whose answers differ most from the reference's."""

    name: str
    kind: str
    question: str
    """Its end, where it is long; empty where prompts are left out."""
    reference_answer: str
    answer: str
    kl_nats: float
    right: bool
    reference_right: bool


class QualityVerdict(Record):
    """Whether a launch answers as the reference does: pass, fail, or unknown with the reason."""

    status: QualityStatus
    reason: str
    margin_nats: float
    texts: int = 0
    answers: int = 0
    kl: QualityInterval | None = None
    """Of prefill, over the texts."""
    answer_kl: QualityInterval | None = None
    """Of decoding, over the answers to short questions, up to the first token that differs."""
    long_kl: QualityInterval | None = None
    """The same over a long context."""
    regret: QualityInterval | None = None
    """By how much less likely the generated tokens are than the likeliest, to the launch itself."""
    log_ratio: QualityInterval | None = None
    """By how much less likely the texts are than to the reference; exp of it is the ratio of perplexities."""
    top1_agreement: QualityInterval | None = None
    """Share of places whose likeliest token is the reference's likeliest."""
    same_answers: float | None = None
    """Share of the questions that were answered with the reference's tokens."""
    tasks: int = 0
    tasks_right: int | None = None
    reference_tasks_right: int | None = None
    tasks_p: float | None = None
    """Probability of so many more changes for the worse than for the better by chance (exact McNemar, one-sided)."""
    examples: tuple[QualityExample, ...] = ()


class AnswersQuality(Record):
    """The verdict on the configs of one hardware that answer alike: nothing in which they differ can change answers."""

    hardware: str
    answers: str
    """Identifies what can change answers; see PlannedConfig."""
    config_ids: tuple[PathName, ...]
    trial_ids: tuple[PathName, ...]
    """Launches whose answers were measured; empty where another sweep's measurement was used."""
    is_reference: bool
    changes: tuple[str, ...] = ()
    """Their differences from the reference, in words."""
    verdict: QualityVerdict


class SweepQuality(Record):
    """How the answers of a sweep's configs agree with their reference's, and which config the reference is."""

    format_version: int = FORMAT_VERSION
    sweep_id: PathName
    references: dict[str, str]
    """Hardware → the reference in words, with why it is that one."""
    verdicts: tuple[AnswersQuality, ...]
