"""Prompts of a workload, as request templates. Lengths and texts follow from the seed; a salt goes before each prompt.

Synthetic prompts for `/completions` are token ids, so their lengths are exact. For `/chat/completions`, which takes
text, they are words that the engine counts as one token each; the chat template adds its own. Conversations are chats.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.assignment import Conversation, RequestTemplate, Turn
from tokenpeak.loadgen.chats import conversations_of
from tokenpeak.loadgen.datasets import read_samples, read_starters, salted
from tokenpeak.loadgen.pooling_prompts import TAKE_IDS, distinct_requests, pooling_templates
from tokenpeak.loadgen.request_forms import RequestForms, has_form
from tokenpeak.loadgen.traces.reading import read_trace
from tokenpeak.loadgen.traces.trace import Trace, TraceEntry
from tokenpeak.loadgen.vocabulary import Vocabulary
from tokenpeak.spec.lengths import Length, LengthDistribution
from tokenpeak.spec.workload import (
    ConversationWorkload,
    DatasetWorkload,
    FixedWorkload,
    PoolingWorkload,
    SyntheticWorkload,
    TraceWorkload,
    Workload,
)

Generating = FixedWorkload | SyntheticWorkload | DatasetWorkload | ConversationWorkload | TraceWorkload

Messages = tuple[Mapping[str, Any], ...]

SALT_IDS = 6
HIT_RATE_STEP = 0.01
"""By how much a workload may fall short of its hit rate because blocks are served whole."""
POOL = 4096
"""Distinct requests made ahead for a run without a fixed number; later ones repeat them with a salt of their own."""


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The requests of a run, or its conversations, ready to be sent. `resalt`: a repeat needs a salt of its own."""

    templates: tuple[RequestTemplate, ...] = ()
    conversations: tuple[Conversation, ...] = ()
    conversation_options: dict[str, object] | None = None
    think_time_s: float = 0.0
    resalt: bool = False
    salt_ids: tuple[int, ...] = ()
    """Token ids that salts are written in; empty: salts are words."""
    results: int | None = None
    """Results that each answer must hold; None: answers are streams of tokens."""


def lengths(length: Length, number: int, random: np.random.Generator) -> list[int]:
    """`number` lengths in tokens, each at least 1."""
    if isinstance(length, int):
        return [length] * number
    drawn = _drawn(length, number, random)
    high = length.high if length.high is not None else np.inf
    return [int(value) for value in np.clip(np.rint(drawn), length.low, high)]


def _drawn(
    length: LengthDistribution, number: int, random: np.random.Generator
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    if length.distribution == "table":
        values = np.array([value for value, _ in length.table], dtype=float)
        weights = np.array([weight for _, weight in length.table])
        return random.choice(values, size=number, p=weights / weights.sum())
    if length.distribution == "uniform":
        assert length.high is not None
        return random.integers(length.low, length.high + 1, number).astype(float)
    assert length.mean is not None
    assert length.std is not None
    if length.distribution == "normal":
        return random.normal(length.mean, length.std, number)
    spread = np.log1p((length.std / length.mean) ** 2)
    return random.lognormal(np.log(length.mean) - spread / 2, np.sqrt(spread), number)


def _options(workload: Generating, model: str, output_tokens: int | None, seed: int) -> dict[str, object]:
    """The rest of a body, besides its prompt."""
    options: dict[str, object] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": workload.temperature,
        "seed": seed,
    }
    if output_tokens is not None:
        options["max_tokens"] = output_tokens
        if workload.ignore_eos:
            options["min_tokens"] = output_tokens
    if workload.ignore_eos:
        options["ignore_eos"] = True
    return options


def _text_template(
    workload: Generating, model: str, prompt: str | Messages, output_tokens: int | None, seed: int, salt: str
) -> RequestTemplate:
    """A request whose prompt is text, or a chat's messages, split where a salt goes."""
    mark = "\u0000"
    options = _options(workload, model, output_tokens, seed)
    if not isinstance(prompt, str):
        options["messages"] = salted(prompt, mark)
    elif workload.endpoint == "chat":
        options["messages"] = [{"role": "user", "content": mark + prompt}]
    else:
        options["prompt"] = mark + prompt
    prefix, suffix = json.dumps(options, separators=(",", ":")).split(json.dumps(mark)[1:-1], 1)
    return RequestTemplate(
        prefix=prefix.encode(), salt=salt.encode(), suffix=suffix.encode(), output_tokens=output_tokens
    )


def _id_template(
    workload: Generating, model: str, ids: Sequence[int], output_tokens: int, seed: int, *, shared: int = 0
) -> RequestTemplate:
    """A request whose prompt is token ids; the first few behind those that it shares with others are its salt."""
    options = json.dumps(_options(workload, model, output_tokens, seed), separators=(",", ":"))
    salted = min(shared + SALT_IDS, len(ids) - 1)
    return RequestTemplate(
        prefix=(options[:-1] + ',"prompt":[' + "".join(f"{token}," for token in ids[:shared])).encode(),
        salt="".join(f"{token}," for token in ids[shared:salted]).encode(),
        suffix=(",".join(map(str, ids[salted:])) + "]}").encode(),
        output_tokens=output_tokens,
    )


def make(
    workload: Workload, model: str, vocabulary: Vocabulary, *, number: int | None, seed: int, salt: str
) -> Prompts:
    """The requests of a run: `number` of them, or a pool to draw on when the run is bounded by time.

    `seed` fixes lengths; prompts follow from seed and salt, so that two runs ask for the same work in other words.
    """
    prompts = _texts(workload, model, vocabulary, number, seed, salt)
    if isinstance(workload, PoolingWorkload) or not has_form(workload):
        return prompts
    forms = RequestForms(workload, salt)
    return replace(
        prompts,
        templates=tuple(map(forms.template, _each_its_own(prompts.templates, number))),
        conversations=tuple(map(forms.conversation, prompts.conversations)),
    )


def _each_its_own(templates: Sequence[RequestTemplate], number: int | None) -> Sequence[RequestTemplate]:
    """As many templates as requests where all have the same text: a share of them has a form."""
    return templates if len(templates) != 1 else [*templates] * (number or POOL)


def _texts(workload: Workload, model: str, vocabulary: Vocabulary, number: int | None, seed: int, salt: str) -> Prompts:
    """The requests as texts alone."""
    count = number if number is not None else POOL
    random = np.random.default_rng([workload.seed, seed])
    words = np.random.default_rng([workload.seed, seed, *(salt.encode() if workload.salt else b"")])
    mark = f"{salt} " if workload.salt else ""
    if isinstance(workload, ConversationWorkload):
        return _conversations(workload, model, vocabulary, count, random, words, mark, seed)
    if isinstance(workload, PoolingWorkload):
        return _pooling(workload, model, vocabulary, count, random, words)
    if isinstance(workload, FixedWorkload):
        template = _text_template(workload, model, workload.prompt, workload.output_tokens, seed, mark)
        return Prompts(templates=(template,))
    if isinstance(workload, DatasetWorkload):
        samples = read_samples(workload)
        if workload.turn_by_turn:
            return Prompts(
                conversations=conversations_of(samples, workload, count, random, mark),
                conversation_options=_options(workload, model, 1, seed),
                think_time_s=workload.think_time_s,
            )
        chosen = (samples[index] for index in random.permutation(len(samples))[:count])
        templates = [
            _text_template(workload, model, each.messages or each.prompt, each.output_tokens, seed, mark)
            for each in chosen
        ]
    elif isinstance(workload, TraceWorkload):
        templates = _replayed(workload, model, vocabulary, read_trace(workload), count, seed, words)
    else:
        given, asked = (lengths(each, count, random) for each in (workload.input_tokens, workload.output_tokens))
        begins = shared_tokens(given, workload.prefix_hit_rate, vocabulary.block_tokens)
        beginning = vocabulary.drawn(max(begins, default=0), words)
        templates = [
            _synthetic(workload, model, vocabulary, each, more, seed, words, beginning[:begin])
            for each, more, begin in zip(given, asked, begins, strict=True)
        ]
    ids = vocabulary.ids if workload.endpoint == "completions" else ()
    return Prompts(templates=tuple(templates), resalt=workload.salt, salt_ids=ids)


def _pooling(
    workload: PoolingWorkload,
    model: str,
    vocabulary: Vocabulary,
    count: int,
    random: np.random.Generator,
    words: np.random.Generator,
) -> Prompts:
    """Requests of a pooling model; texts that are words have no salt: it would not be of one token."""
    sample = lengths(workload.input_tokens, POOL, np.random.default_rng(workload.seed))
    distinct = distinct_requests(workload, count, float(np.mean(sample)))
    texts = np.array(lengths(workload.input_tokens, distinct * workload.inputs, random)).reshape(distinct, -1)
    queries = lengths(workload.query_tokens, distinct, random) if workload.query_tokens is not None else []
    takes_ids = workload.endpoint in TAKE_IDS
    return Prompts(
        templates=pooling_templates(workload, model, vocabulary, texts.tolist(), queries, words),
        resalt=workload.salt and takes_ids,
        salt_ids=vocabulary.ids if takes_ids else (),
        results=workload.inputs,
    )


def _replayed(
    workload: TraceWorkload,
    model: str,
    vocabulary: Vocabulary,
    trace: Trace,
    count: int,
    seed: int,
    words: np.random.Generator,
) -> list[RequestTemplate]:
    """A request for each of the trace's, whose prompts share what the trace says; texts are made and salted by seed."""
    texts = _SharedTexts(vocabulary, words)
    templates = []
    for entry in trace.entries[:count]:
        beginning = texts.beginning(trace, entry)
        templates.append(
            _synthetic(workload, model, vocabulary, entry.input_tokens, entry.output_tokens, seed, words, beginning)
        )
    return templates


class _SharedTexts:
    """What prompts of a trace have in common, made once for each name."""

    def __init__(self, vocabulary: Vocabulary, random: np.random.Generator) -> None:
        self._vocabulary = vocabulary
        self._random = random
        self._made: dict[str, list[int]] = {}

    def beginning(self, trace: Trace, entry: TraceEntry) -> list[int]:
        """The places in the vocabulary of all that the trace names of a prompt."""
        places: list[int] = []
        for name, tokens in trace.shared_parts(entry):
            made = self._made.setdefault(name, [])
            made += self._vocabulary.drawn(tokens - len(made), self._random)
            places += made[:tokens]
        return places


def _conversations(
    workload: ConversationWorkload,
    model: str,
    vocabulary: Vocabulary,
    count: int,
    random: np.random.Generator,
    words: np.random.Generator,
    mark: str,
    seed: int,
) -> Prompts:
    """Conversations that share starters in turn; each opens with a salt of the run, not of its own."""
    if isinstance(workload.starters, int) and workload.starter_tokens is not None:
        sizes = lengths(workload.starter_tokens, workload.starters, random)
        starters = [mark + vocabulary.text(vocabulary.drawn(tokens, words)) for tokens in sizes]
    else:
        starters = [mark + text for text in read_starters(workload)]
    conversations = []
    for number in range(-(-count // workload.turns)):
        if workload.turn_input_tokens is None:
            said = [str(workload.turn_text)] * workload.turns
        else:
            inputs = lengths(workload.turn_input_tokens, workload.turns, random)
            said = [vocabulary.text(vocabulary.drawn(tokens, words)) for tokens in inputs]
        outputs = lengths(workload.output_tokens, workload.turns, random)
        conversations.append(
            Conversation(
                starter=starters[number % len(starters)],
                turns=tuple(
                    Turn(messages=({"role": "user", "content": text},), output_tokens=output)
                    for text, output in zip(said, outputs, strict=True)
                ),
            )
        )
    return Prompts(
        conversations=tuple(conversations),
        conversation_options=_options(workload, model, 1, seed),
        think_time_s=workload.think_time_s,
    )


def _synthetic(
    workload: Generating,
    model: str,
    vocabulary: Vocabulary,
    input_tokens: int,
    output_tokens: int,
    seed: int,
    random: np.random.Generator,
    beginning: Sequence[int],
) -> RequestTemplate:
    """A request that begins with these places of the vocabulary; the rest of it is drawn."""
    places = [*beginning, *vocabulary.drawn(input_tokens - len(beginning), random)]
    shared = min(len(beginning), input_tokens - 1)
    if workload.endpoint == "chat":
        return _text_template(workload, model, " " + vocabulary.text(places), output_tokens, seed, "")
    return _id_template(workload, model, vocabulary.tokens(places), output_tokens, seed, shared=shared)


def shared_tokens(prompts: Sequence[int], hit_rate: float, block_tokens: int) -> list[int]:
    """How many tokens each prompt begins with as the others do, so that this share of all tokens can be cached.

    Whole blocks, and never the last token of a prompt, which the engine computes in any case. WorkloadError where the
    prompts are too short for the share.
    """
    shared: list[int] = []
    tokens = taken = 0
    for prompt in prompts:
        tokens += prompt
        most = (prompt - 1) // block_tokens
        blocks = min(most, max(0, round((hit_rate * tokens - taken) / block_tokens)))
        taken += blocks * block_tokens
        shared.append(blocks * block_tokens)
    if tokens and hit_rate - taken / tokens > HIT_RATE_STEP and hit_rate * tokens - taken > block_tokens:
        raise WorkloadError(
            f"A prefix_hit_rate of {hit_rate:g} cannot be reached: the engine caches blocks of {block_tokens} tokens, "
            f"so that prompts of {tokens / len(prompts):.0f} tokens reach {taken / tokens:.2f} at most. Give longer "
            "ones, or a lower rate."
        )
    return shared
