"""What is asked of the engine, as a spec declares it: its workloads. How it is asked is in load.py."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from tokenpeak.spec import Declaration
from tokenpeak.spec.lengths import Length
from tokenpeak.spec.request_form import Images, StructuredAnswers, Tools


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
    structured: StructuredAnswers | None = None
    """A JSON Schema that answers must follow; None: answers are free."""
    tools: Tools | None = None
    """Tools that requests offer; None: none."""
    images: Images | None = None
    """Images that requests have; None: only texts."""

    @model_validator(mode="after")
    def _of_chats(self) -> Self:
        is_chat = self.endpoint == "chat" or isinstance(self, ConversationWorkload)
        if not is_chat and (self.tools or self.images):
            raise ValueError(f"{'tools' if self.tools else 'images'} need endpoint: chat")
        return self

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

    Of a chat, all that stands before the last answer is asked again, and an answer of that one's length is asked for;
    or each turn of it after the other, with `turn_by_turn`. Chats need `endpoint: chat`.
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
    """Which of their configs, where a dataset has several."""
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
    turn_by_turn: bool = False
    """Ask a chat as its user did: each turn after the answer to the one before, with all before it as its history.

    The history holds the engine's own answers, which its prefix cache has, as a chat client would send them; they are
    as long as the recorded ones. A recorded answer that called tools stays, since the tools' results belong to it.
    """
    think_time_s: float = Field(default=0.0, ge=0)
    """Pause between an answer and the next turn of a chat."""

    @model_validator(mode="after")
    def _sourced(self) -> "DatasetWorkload":
        if self.turn_by_turn and self.endpoint != "chat":
            raise ValueError("turn_by_turn needs endpoint: chat")
        if self.think_time_s and not self.turn_by_turn:
            raise ValueError("think_time_s needs turn_by_turn: true")
        if not (self.files or self.names) or not all(self.names):
            raise ValueError("give the dataset's path, paths or hub")
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
    prompts share beginnings. Each request is sent at its recorded time, though the one before it in its session still
    runs on an engine slower than the recorded one: nothing of that one's answer is then in the cache.
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


AnyWorkload = Annotated[
    FixedWorkload | SyntheticWorkload | DatasetWorkload | ConversationWorkload | TraceWorkload | ExternalWorkload,
    Field(discriminator="kind"),
]
"""A workload of our own or of an import."""
