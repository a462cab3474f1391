"""What is asked of the engine, as a spec declares it: its workloads. How it is asked is in load.py."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from tokenpeak.spec import Declaration
from tokenpeak.spec.lengths import Length
from tokenpeak.spec.request_form import Images, StructuredAnswers, Tools
from tokenpeak.spec.window import span_s

BASE = "base"
"""The model without an adapter, among the adapters of a workload."""
AdapterName = Annotated[str, Field(pattern=r"^\S+$", max_length=200)]


class _OwnWorkload(Declaration):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    """Its name in tables, on pages and in `objective.workload`."""
    seed: int = 0
    """Seed of prompts and lengths."""
    salt: bool = True
    """Put a token sequence of the run's own before each prompt, so that nothing but the workload's own
    sharing can hit the prefix cache."""
    expected_prefix_hit_rate: float | None = Field(default=None, ge=0, le=1)
    """Share of prompt tokens that the prefix cache should serve; None: not checked."""

    @property
    def intended_hit_rate(self) -> float | None:
        """Share of prompt tokens that the prefix cache should serve; None: not known."""
        return self.expected_prefix_hit_rate


class _Workload(_OwnWorkload):
    endpoint: Literal["completions", "chat"] = "completions"
    """Which endpoint of the API is asked."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature of each request."""
    ignore_eos: bool = True
    """Generate exactly the asked number of tokens, whatever the model would say."""
    adapters: dict[AdapterName, PositiveFloat] = {}
    """Share of the requests that each LoRA adapter gets, by the name under which it is served; `base` is the model
    without one. Shares count against their sum; a conversation stays with its adapter. Empty: the model alone is asked.
    """
    adapter_paths: dict[AdapterName, str] = {}
    """Folders of adapters on the engine's machine, by name: those that the server does not list are loaded by its API
    before any load. Without it, the server has them by its flag `lora_modules`."""
    structured: StructuredAnswers | None = None
    """A JSON Schema that answers must follow; None: answers are free."""
    tools: Tools | None = None
    """Tools that requests offer; None: none."""
    images: Images | None = None
    """Images that requests have; None: only texts."""

    @model_validator(mode="after")
    def _adapted(self) -> Self:
        if extra := self.adapter_paths.keys() - (self.adapters.keys() - {BASE}):
            raise ValueError(f"adapter_paths has {', '.join(sorted(extra))}, of which adapters gives no share")
        return self

    @model_validator(mode="after")
    def _of_chats(self) -> Self:
        is_chat = self.endpoint == "chat" or isinstance(self, ConversationWorkload)
        if not is_chat and (self.tools or self.images):
            raise ValueError(f"{'tools' if self.tools else 'images'} need endpoint: chat")
        return self


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


OBSERVED_S = 600.0
"""For so long production is observed where a spec does not say."""


class ProductionWorkload(_Workload):
    """What production was asked before the sweep stopped it, from its own metrics: a trace that the sweep makes.

    Of several nodes it is the traffic of the one with most requests. Nothing of any prompt is read.
    """

    kind: Literal["production"] = "production"
    """Written `from: production`."""
    name: str = Field(default="production", pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    """Its name in tables, on pages and in `objective.workload`."""
    over: Annotated[PositiveFloat, BeforeValidator(span_s)] = OBSERVED_S
    """For how long its metrics are read before the first trial: `30m`, or seconds. Where too little comes meanwhile,
    lengths and rate are those since production's start."""
    speed: PositiveFloat = 1.0
    """2 replays it in half of its time."""
    scale: PositiveFloat = 1.0
    """2 replays each request twice, the second time somewhere before the next; 0.5 half of them."""

    @property
    def replay_s(self) -> float:
        """How long its replay takes, about."""
        return self.over / self.speed

    def as_trace(self, path: str, hit_rate: float | None) -> TraceWorkload:
        """The same as a replay of the traffic in a file, which should hit the prefix cache as it did there."""
        given = self.model_dump(exclude={"kind", "over"})
        if given["expected_prefix_hit_rate"] is None:
            given["expected_prefix_hit_rate"] = hit_rate
        return TraceWorkload.model_validate({**given, "path": path})


class PoolingWorkload(_OwnWorkload):
    """Texts to embed, to rank, to score or to classify: requests of a pooling model, which generates nothing.

    Texts are random tokens of exact lengths, as the model's vocabulary has them; the engine may add tokens of its own.
    """

    kind: Literal["pooling"] = "pooling"
    """Says that a pooling model is asked."""
    endpoint: Literal["embeddings", "rerank", "score", "classify"]
    """Which endpoint of the API is asked."""
    input_tokens: Length
    """Tokens of each text: a number, or a distribution."""
    inputs: PositiveInt = 1
    """Texts of a request: those to embed or classify, or the documents to rank or score."""
    query_tokens: Length | None = None
    """Tokens of the query to which `rerank` and `score` compare the documents."""

    @model_validator(mode="after")
    def _queried(self) -> "PoolingWorkload":
        if (self.endpoint in ("rerank", "score")) == (self.query_tokens is None):
            needs = "needs query_tokens" if self.query_tokens is None else "has no query: remove query_tokens"
            raise ValueError(f"endpoint: {self.endpoint} {needs}")
        return self


GenerationWorkload = FixedWorkload | SyntheticWorkload | DatasetWorkload | ConversationWorkload | TraceWorkload
"""A workload whose requests are answered with tokens."""
Workload = Annotated[
    GenerationWorkload | PoolingWorkload,
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


def _from_production(raw: object) -> object:
    """`from: production` as the kind that it is."""
    if isinstance(raw, Mapping) and "from" in raw and "kind" not in raw:
        return {"kind": raw["from"], **{key: value for key, value in raw.items() if key != "from"}}
    return raw


AnyWorkload = Annotated[
    Annotated[
        FixedWorkload
        | SyntheticWorkload
        | DatasetWorkload
        | ConversationWorkload
        | TraceWorkload
        | ProductionWorkload
        | PoolingWorkload
        | ExternalWorkload,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_from_production),
]
"""A workload of our own or of an import; production's becomes a trace when its sweep begins."""
