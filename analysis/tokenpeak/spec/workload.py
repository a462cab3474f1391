"""What is asked of the engine (workload) and how it is asked (load level), as a spec declares them.

Every model is frozen, refuses unknown keys, and carries its units in its names.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PositiveFloat, PositiveInt, Tag, model_validator

from tokenpeak.spec import Declaration
from tokenpeak.spec.lengths import Length
from tokenpeak.spec.slo import Slo


class _Workload(Declaration):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    """Its name in tables, on pages and in `objective.workload`."""
    endpoint: Literal["completions", "chat"] = "completions"
    """Which endpoint of the API is asked."""
    seed: int = 0
    """Seed of prompts and lengths."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature of each request."""
    ignore_eos: bool = True
    """Generate exactly the asked number of tokens, whatever the model would say."""
    salt: bool = True
    """Put a token sequence of the run's own before each prompt, so that nothing but the workload's own
    sharing can hit the prefix cache."""
    expected_prefix_hit_rate: float | None = Field(default=None, ge=0, le=1)
    """Share of prompt tokens that the prefix cache should serve; None: not checked."""

    @property
    def intended_hit_rate(self) -> float | None:
        """Share of prompt tokens that the prefix cache should serve; None: not known."""
        return self.expected_prefix_hit_rate


class FixedWorkload(_Workload):
    """One prompt for all requests."""

    kind: Literal["fixed"] = "fixed"
    """Says that every request has the same prompt."""
    prompt: str
    """The text."""
    output_tokens: PositiveInt
    """Tokens to generate for a request."""


class SyntheticWorkload(_Workload):
    """Random token ids of exact lengths."""

    kind: Literal["synthetic"] = "synthetic"
    """Says that prompts are random tokens."""
    input_tokens: Length
    """Prompt tokens of a request: a number, or a distribution."""
    output_tokens: Length
    """Tokens to generate for a request: a number, or a distribution."""
    prefix_hit_rate: float = Field(default=0.0, ge=0, lt=1)
    """Share of prompt tokens that a prefix cache can serve: requests begin alike, in whole blocks of the cache."""

    @model_validator(mode="after")
    def _exact(self) -> "SyntheticWorkload":
        if self.prefix_hit_rate and self.endpoint == "chat":
            raise ValueError("prefix_hit_rate needs endpoint: completions, where a prompt's tokens are exact")
        return self

    @property
    def intended_hit_rate(self) -> float:
        """Share of prompt tokens that the prefix cache should serve: what was expected, else what is produced."""
        return self.prefix_hit_rate if self.expected_prefix_hit_rate is None else self.expected_prefix_hit_rate


class DatasetWorkload(_Workload):
    """Prompts sampled from files or datasets of the hub: ShareGPT's `.json`, `.jsonl` or `.parquet`; or chats.

    Of a chat, all that stands before the last answer is asked again, and an answer of that one's length is asked for.
    Chats need `endpoint: chat`.
    """

    kind: Literal["dataset"] = "dataset"
    """Says that prompts are sampled from a file."""
    path: str | None = None
    """The file."""
    paths: tuple[str, ...] = ()
    """Several files, whose prompts are merged."""
    hub: tuple[str, ...] | str = ()
    """Datasets of the hub by name, merged likewise; they need the datasets library (the extra `hub`)."""
    subset: str | None = None
    """Which part of them, where a dataset has several that its page names as its configs."""
    split: str = "train"
    """Which split of them."""
    match: str | None = None
    """A regular expression: prompts in which it is not found are left out; `(?i)` before it ignores case."""
    prompt_column: str = "prompt"
    """Column of the prompts, in JSONL and Parquet."""
    output_column: str | None = None
    """Column of reference answers, whose lengths are then asked for; None: `output_tokens` for all."""
    output_tokens: PositiveInt | None = None
    """Tokens to generate for a request, where the file does not say."""
    min_input_tokens: PositiveInt = 1
    """Shorter prompts are left out."""
    max_input_tokens: PositiveInt | None = None
    """Longer prompts are left out."""

    @model_validator(mode="after")
    def _sourced(self) -> "DatasetWorkload":
        if not (self.files or self.names):
            raise ValueError("give the dataset's path, paths or hub")
        if not all(self.names):
            raise ValueError("a dataset of the hub needs a name, such as org/name")
        try:
            re.compile(self.match or "")
        except re.error as error:
            raise ValueError(f"match {self.match!r} is no regular expression: {error}") from error
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """All files."""
        return (*([self.path] if self.path is not None else []), *self.paths)

    @property
    def names(self) -> tuple[str, ...]:
        """All datasets of the hub."""
        return (self.hub,) if isinstance(self.hub, str) else self.hub


class ConversationWorkload(_Workload):
    """Multi-turn chats: shared starters, each turn resending its whole history."""

    kind: Literal["conversation"] = "conversation"
    """Says that requests are turns of chats."""
    starters: PositiveInt | str
    """How many different beginnings the chats share, such as system prompts; or a JSONL file of them, each a `text`."""
    starter_tokens: Length | None = None
    """Length of a beginning that is made; None: a file has them."""
    turns: PositiveInt
    """Requests of a chat."""
    turn_input_tokens: Length | None = None
    """Length of the user's words in a turn, which are made; None: `turn_text` has them."""
    turn_text: str | None = Field(default=None, min_length=1)
    """What the user says in every turn, such as one question about a document."""
    output_tokens: Length
    """Tokens to generate in a turn."""
    think_time_s: float = Field(default=0.0, ge=0)
    """Pause between an answer and the next turn."""

    @model_validator(mode="after")
    def _beginnings(self) -> "ConversationWorkload":
        if isinstance(self.starters, int) == (self.starter_tokens is None):
            raise ValueError("give a number of starters with starter_tokens, or a file of starters without")
        if (self.turn_input_tokens is None) == (self.turn_text is None):
            raise ValueError("give either turn_input_tokens or turn_text")
        return self


class TraceWorkload(_Workload):
    """Recorded requests, replayed at their times: their lengths, and what their prompts share; texts are made.

    Formats are those of Mooncake, Azure, BurstGPT, AIPerf, GuideLLM, OpenTelemetry, OpenAI's responses and vLLM's own
    log of requests; and JSONL of `timestamp_s`, `input_tokens`, `output_tokens`, with `blocks` or `session` where
    prompts share beginnings.
    """

    kind: Literal["trace"] = "trace"
    """Says that times and lengths are recorded ones."""
    path: str
    """The file."""
    speed: PositiveFloat = 1.0
    """2 replays it in half of its time."""
    scale: PositiveFloat = 1.0
    """2 replays each request twice, the second time as another user's, somewhere before the next; 0.5 half of them."""
    begin_s: float = Field(default=0.0, ge=0)
    """Requests before it are left out; in seconds of the trace, from its first request."""
    end_s: PositiveFloat | None = None
    """Requests from it on are left out."""
    block_tokens: PositiveInt | None = None
    """Tokens of each block that the trace names; None: as the format says."""

    @model_validator(mode="after")
    def _ordered(self) -> "TraceWorkload":
        if self.end_s is not None and self.end_s <= self.begin_s:
            raise ValueError(f"end_s of {self.end_s:g} must be after begin_s of {self.begin_s:g}")
        return self


Workload = Annotated[
    FixedWorkload | SyntheticWorkload | DatasetWorkload | ConversationWorkload | TraceWorkload,
    Field(discriminator="kind"),
]

FEWEST_WAVES = 2
"""Waves that a steady window should hold: with one, lengths that differ leave an error of some 10%."""


class _LoadLevel(Declaration):
    requests: PositiveInt | None = None
    """How many requests are measured; this or `duration_s`."""
    duration_s: PositiveFloat | None = None
    """For how long requests are sent; this or `requests`."""
    warmup_requests: int = Field(default=0, ge=0)
    """Sent before the measured ones, at the same level, and not counted."""


class _BoundedLevel(_LoadLevel):
    @model_validator(mode="after")
    def _bounded(self) -> "_BoundedLevel":
        if (self.requests is None) == (self.duration_s is None):
            raise ValueError("give either requests or duration_s")
        return self


class ClosedLoad(_BoundedLevel):
    """A fixed number of requests in flight: the next one is sent when one ends."""

    concurrency: PositiveInt
    """Requests in flight."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return f"concurrency={self.concurrency}"


class _Arrivals(Declaration):
    arrivals: Literal["constant", "poisson", "gamma"] = "poisson"
    """How the gaps between due requests are drawn (loadgen/arrivals.py)."""
    burstiness: PositiveFloat = 1.0
    """Shape of the gamma distribution of gaps: 1 is Poisson, below 1 burstier, above 1 more even."""
    max_concurrency: PositiveInt | None = None
    """Requests due beyond it wait in the client; their latency still counts from when they were due."""


class OpenLoad(_BoundedLevel, _Arrivals):
    """Requests due at a rate, whether or not earlier ones have ended."""

    rate_per_s: PositiveFloat
    """Requests due per second, on average."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return f"rate={self.rate_per_s:g}/s"


class Stage(Declaration):
    """A part of a staged level: a rate or a concurrency, held or reached by a ramp from the stage before."""

    duration_s: PositiveFloat
    """How long the stage takes."""
    rate_per_s: PositiveFloat | None = None
    """Requests due per second at its end."""
    concurrency: PositiveInt | None = None
    """Requests in flight at its end."""
    ramp: bool = False
    """Go evenly from the value before (0 at first) to this one; False: jump to it."""


class StagedLoad(_LoadLevel, _Arrivals):
    """Rates, or concurrencies, that change with time."""

    stages: tuple[Stage, ...] = Field(min_length=1)
    """In order; all with `rate_per_s`, or all with `concurrency`."""

    @model_validator(mode="after")
    def _one_kind(self) -> "StagedLoad":
        rates = sum(stage.rate_per_s is not None for stage in self.stages)
        caps = sum(stage.concurrency is not None for stage in self.stages)
        if sorted((rates, caps)) != [0, len(self.stages)]:
            raise ValueError("give every stage a rate_per_s, or every stage a concurrency")
        if self.duration_s is not None:
            raise ValueError("the stages' own durations bound a staged level; leave duration_s out")
        return self

    @property
    def open(self) -> bool:
        """True for rates, False for concurrencies."""
        return self.stages[0].rate_per_s is not None

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        steps = ">".join(
            f"{'~' if stage.ramp else ''}{stage.rate_per_s or stage.concurrency:g}" for stage in self.stages
        )
        return f"{'rates' if self.open else 'concurrencies'}={steps}"


class ReplayLoad(_LoadLevel):
    """A trace's own timetable; its workload is a trace, which says at what speed."""

    replay: Literal[True]
    """Says that the trace's own times are kept."""
    max_concurrency: PositiveInt | None = None
    """Requests due beyond it wait in the client; their latency still counts from when they were due."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return "replay"


SEARCH_REQUESTS, SEARCH_LEAST_S = 4200.0, 40.0


def search_time_s(rate_per_s: float, budget_s: float) -> float:
    """The most that a search takes which finds this rate: that of so many requests, but not less than some seconds."""
    return min(budget_s, max(SEARCH_LEAST_S, SEARCH_REQUESTS / rate_per_s))


class MaxRateLoad(_LoadLevel, _Arrivals):
    """The highest rate within an SLO, searched for with probes that are open loops."""

    max_rate_under: Slo
    """The limits that the rate must hold."""
    budget_s: PositiveFloat = 600
    """No probe begins that would end after this. The search takes 4200 requests at the rate that it finds, or less."""

    @model_validator(mode="after")
    def _searchable(self) -> "MaxRateLoad":
        if not self.max_rate_under.limits():
            raise ValueError("max_rate_under needs at least one limit, such as ttft_p99_ms: 1000")
        if self.requests is not None or self.duration_s is not None:
            raise ValueError("budget_s bounds the search")
        return self

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        return "max_rate"


LoadLevel = ClosedLoad | OpenLoad | StagedLoad | ReplayLoad | MaxRateLoad
"""How a workload is asked: which keys are given says which kind it is."""


class ExternalWorkload(Declaration):
    """The workload of another tool, as far as its results show; TokenPeak cannot ask it again."""

    kind: Literal["external"] = "external"
    """Says that another tool asked."""
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    """Its name in tables and on pages."""
    description: str = ""
    """A description, in words."""
    input_tokens: PositiveFloat | None = None
    """Mean prompt tokens of a request."""
    output_tokens: PositiveFloat | None = None
    """Mean output tokens of a request."""
    max_output_tokens: PositiveInt | None = None
    """The most output tokens that a request asked for."""


class ExternalLoad(Declaration):
    """How another tool asked, as far as its results show; all None: not known."""

    external: Literal[True]
    """Says that another tool asked."""
    concurrency: PositiveInt | None = None
    """Requests in flight, or the most of them where a rate is given too."""
    rate_per_s: PositiveFloat | None = None
    """Requests due per second; None with a concurrency: each is sent when one ends, or all at once."""
    requests: PositiveInt | None = None
    """How many requests were measured."""

    @property
    def label(self) -> str:
        """The level in a few words, unique within a workload."""
        if self.rate_per_s is not None:
            return f"rate={self.rate_per_s:g}/s"
        return f"concurrency={self.concurrency}" if self.concurrency is not None else "load-unknown"


AnyWorkload = Annotated[
    FixedWorkload | SyntheticWorkload | DatasetWorkload | ConversationWorkload | TraceWorkload | ExternalWorkload,
    Field(discriminator="kind"),
]
"""A workload of our own or of an import."""

_KEYS = {
    "external": "external",
    "replay": "replay",
    "max_rate_under": "max_rate",
    "stages": "staged",
    "rate_per_s": "open",
    "concurrency": "closed",
}
"""Key → the kind of load level that it makes; the first that is given counts."""


def _kind(given: object) -> str | None:
    """Which kind of load level is meant, so that a mistake in it is not complained of as one in every kind."""
    keys = given if isinstance(given, Mapping) else vars(given) if isinstance(given, Declaration) else {}
    return next((kind for key, kind in _KEYS.items() if keys.get(key) is not None), None)


AnyLevel = Annotated[
    Annotated[ClosedLoad, Tag("closed")]
    | Annotated[OpenLoad, Tag("open")]
    | Annotated[StagedLoad, Tag("staged")]
    | Annotated[ReplayLoad, Tag("replay")]
    | Annotated[MaxRateLoad, Tag("max_rate")]
    | Annotated[ExternalLoad, Tag("external")],
    Discriminator(
        _kind,
        custom_error_type="no_level",
        custom_error_message="give concurrency, rate_per_s, stages, max_rate_under or replay",
    ),
]
"""A load level of our own or of an import."""


def level_kind(level: AnyLevel) -> str:
    """closed, open, or unknown where an import does not say."""
    if isinstance(level, ExternalLoad) and level.rate_per_s is None:
        return "closed" if level.concurrency is not None else "unknown"
    if isinstance(level, StagedLoad):
        return "open" if level.open else "closed"
    return "closed" if isinstance(level, ClosedLoad) else "open"
