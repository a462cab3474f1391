"""What is asked of the engine (workload) and how it is asked (load level), as a spec declares them.

Every model is frozen, refuses unknown keys, and carries its units in its names.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator


class Declaration(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LengthDistribution(Declaration):
    """Lengths in tokens drawn independently for each request, clipped to `low`..`high`."""

    distribution: Literal["uniform", "normal", "lognormal", "table"]
    mean: PositiveFloat | None = None
    std: PositiveFloat | None = None
    low: PositiveInt = 1
    high: PositiveInt | None = None
    table: tuple[tuple[PositiveInt, PositiveFloat], ...] = ()
    """For `table`: pairs of a length and its weight."""

    @model_validator(mode="after")
    def _complete(self) -> "LengthDistribution":
        if self.distribution == "table" and not self.table:
            raise ValueError("distribution 'table' needs table: [[length, weight], …]")
        if self.distribution in ("normal", "lognormal") and (self.mean is None or self.std is None):
            raise ValueError(f"distribution '{self.distribution}' needs mean and std")
        if self.distribution == "uniform" and self.high is None:
            raise ValueError("distribution 'uniform' needs high")
        return self


Length = PositiveInt | LengthDistribution


class _Workload(Declaration):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    endpoint: Literal["completions", "chat"] = "completions"
    seed: int = 0
    temperature: float = Field(default=0.0, ge=0)
    ignore_eos: bool = True
    """Generate exactly the asked number of tokens, whatever the model would say."""
    salt: bool = True
    """Put a token sequence of the run's own before each prompt, so that nothing but the workload's own
    sharing can hit the prefix cache."""
    expected_prefix_hit_rate: float | None = Field(default=None, ge=0, le=1)
    """Share of prompt tokens that the prefix cache should serve; None: not checked."""


class FixedWorkload(_Workload):
    """One prompt for all requests."""

    kind: Literal["fixed"] = "fixed"
    prompt: str
    output_tokens: PositiveInt


class SyntheticWorkload(_Workload):
    """Random token ids of exact lengths."""

    kind: Literal["synthetic"] = "synthetic"
    input_tokens: Length
    output_tokens: Length


class DatasetWorkload(_Workload):
    """Prompts sampled from a file: ShareGPT JSON, JSONL or Parquet."""

    kind: Literal["dataset"] = "dataset"
    path: str
    prompt_column: str = "prompt"
    output_column: str | None = None
    """Column of reference answers, whose lengths are then asked for; None: `output_tokens` for all."""
    output_tokens: PositiveInt | None = None
    min_input_tokens: PositiveInt = 1
    max_input_tokens: PositiveInt | None = None
    min_output_tokens: PositiveInt = 1
    max_output_tokens: PositiveInt | None = None


class ConversationWorkload(_Workload):
    """Multi-turn chats: shared starters, each turn resending its whole history."""

    kind: Literal["conversation"] = "conversation"
    starters: PositiveInt
    starter_tokens: Length
    turns: PositiveInt
    turn_input_tokens: Length
    output_tokens: Length
    think_time_s: float = Field(default=0.0, ge=0)


class TraceWorkload(_Workload):
    """A recorded timetable: JSONL of `timestamp_s`, `input_tokens`, `output_tokens`, replayed at a speed."""

    kind: Literal["trace"] = "trace"
    path: str
    speed: PositiveFloat = 1.0


Workload = Annotated[
    FixedWorkload | SyntheticWorkload | DatasetWorkload | ConversationWorkload | TraceWorkload,
    Field(discriminator="kind"),
]


class _LoadLevel(Declaration):
    requests: PositiveInt | None = None
    duration_s: PositiveFloat | None = None
    warmup_requests: int = Field(default=0, ge=0)
    """Sent before the measured ones, at the same level, and not counted."""

    @model_validator(mode="after")
    def _bounded(self) -> "_LoadLevel":
        if (self.requests is None) == (self.duration_s is None):
            raise ValueError("give either requests or duration_s")
        return self


class ClosedLoad(_LoadLevel):
    """A fixed number of requests in flight: the next one is sent when one ends."""

    concurrency: PositiveInt

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return f"concurrency={self.concurrency}"


class OpenLoad(_LoadLevel):
    """Requests due at a rate, whether or not earlier ones have ended."""

    rate_per_s: PositiveFloat
    arrivals: Literal["constant", "poisson", "gamma"] = "poisson"
    burstiness: PositiveFloat = 1.0
    """Shape of the gamma distribution of gaps: 1 is Poisson, below 1 burstier, above 1 more even."""
    max_concurrency: PositiveInt | None = None
    """Requests due beyond it wait in the client; their latency still counts from when they were due."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return f"rate={self.rate_per_s:g}/s"


LoadLevel = ClosedLoad | OpenLoad


class Slo(Declaration):
    """Limits that a run must hold; the field's name says metric, percentile and unit."""

    ttft_p50_ms: PositiveFloat | None = None
    ttft_p95_ms: PositiveFloat | None = None
    ttft_p99_ms: PositiveFloat | None = None
    tpot_p50_ms: PositiveFloat | None = None
    tpot_p95_ms: PositiveFloat | None = None
    tpot_p99_ms: PositiveFloat | None = None
    itl_p95_ms: PositiveFloat | None = None
    itl_p99_ms: PositiveFloat | None = None
    latency_p50_ms: PositiveFloat | None = None
    latency_p95_ms: PositiveFloat | None = None
    latency_p99_ms: PositiveFloat | None = None

    def limits(self) -> list[tuple[str, str, float]]:
        """The limits given: (metric as in metrics.py, percentile, limit in seconds)."""
        found = []
        for field, limit_ms in self:
            if limit_ms is not None:
                metric, percentile, _ = field.split("_")
                found.append((f"{metric}_s", percentile, limit_ms / 1000))
        return found
