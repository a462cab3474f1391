"""Quality of a config: the reference's answers, how a launch agrees with them, and whether it passes.

Divergences are in nats a token. A log-probability is natural; `TopK` holds those of the likeliest tokens of a position,
and of the token that stands there.
"""

from datetime import datetime
from typing import Literal

from tokenpeak.records.base import FORMAT_VERSION, Record

TopK = dict[int, float]
"""Token → log-probability."""
QualityStatus = Literal["pass", "fail", "unknown"]


class ReferenceAnswer(Record):
    """A prompt of the measurement, what the reference config answered to it, greedily, and its own score of that."""

    name: str
    kind: str
    text: str
    right_answer: str
    prompt_tokens: tuple[int, ...]
    answer_tokens: tuple[int, ...]
    answer_text: str
    scores: tuple[TopK, ...]
    """For each token of the answer, as the reference's prefill scores it."""


class PromptQuality(Record):
    """What one launch made of one prompt; means over the tokens of an answer."""

    name: str
    kind: str
    tokens: int
    """Of the reference's answer."""
    kl_nats: float
    """Lower bound of the divergence of the launch's prefill from the reference's, over the reference's answer."""
    top1_agreement: float
    """Share of tokens whose likeliest token is the reference's likeliest."""
    log_ratio_nats: float
    """By how much less likely the reference's answer is to the launch; exp of the mean is the ratio of perplexities."""
    decode_kl_nats: float | None
    """Of what was generated in a batch: lower bound of the divergence of decoding from the launch's own prefill. None:
    the engine gave no log-probabilities with its tokens."""
    decode_regret_nats: float
    """By how much the generated tokens are less likely, to the launch's own prefill, than the likeliest."""
    same_tokens: float
    """Share of the reference's answer that was generated before the first difference."""
    answer_text: str
    right: bool
    """The generated answer begins with the right one."""


class QualityMeasurement(Record):
    """How the answers of one launch agree with the reference's."""

    prompts: tuple[PromptQuality, ...] = ()
    left_out: tuple[str, ...] = ()
    """Prompts that are too long for this launch."""
    problem: str | None = None
    """Why it could not be measured to the end; `prompts` is then empty."""
    started_at: datetime | None = None
    tokens: int = 0
    """Tokens that the engine processed for it."""
    duration_s: float = 0.0


class QualityReference(Record):
    """The answers of a reference config, and its own agreement with them in another batch: the noise floor."""

    format_version: int = FORMAT_VERSION
    recorded_at: datetime
    model: str
    engine_version: str | None
    answers: tuple[ReferenceAnswer, ...]
    floor: QualityMeasurement


class QualityInterval(Record):
    """A mean over prompts with the interval that decides, in nats a token, above the noise floor."""

    estimate: float
    low: float
    high: float


class QualityVerdict(Record):
    """Whether a launch answers as the reference does: pass, fail, or unknown with the reason."""

    status: QualityStatus
    reason: str
    margin_nats: float
    prompts: int
    kl: QualityInterval | None = None
    decode_kl: QualityInterval | None = None
    decode_regret: QualityInterval | None = None
    top1_agreement: float | None = None
    perplexity_ratio: float | None = None
    tasks_right: int | None = None
    reference_tasks_right: int | None = None


class TrialQuality(Record):
    """The quality of a trial's launch, as measured after its load."""

    verdict: QualityVerdict
    measurement: QualityMeasurement
