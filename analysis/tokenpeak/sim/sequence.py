"""Sequences that the simulated engine generates, and the invented language that they are of.

There is no vocabulary file: any text has tokens, any token has a word, and a word gives its token back. Generated text
is made of invented words, one token each. Sent back in the next turn of a chat it comes out as the same tokens, so that
the prefix cache finds what it has already computed, as with a real model. Foreign text is cut where a byte-pair
tokenizer roughly would, about four characters a token.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from math import exp, log
from random import Random
from typing import Literal
from zlib import crc32

FinishReason = Literal["stop", "length", "abort"]

_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407
_MASK = (1 << 64) - 1
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_ENDINGS = "aeiou"
_SYLLABLES = tuple(consonant + vowel for consonant in _CONSONANTS for vowel in _ENDINGS)
_NUMBER_OF = {syllable: number for number, syllable in enumerate(_SYLLABLES)}
_BASE = len(_SYLLABLES)
SPOKEN_TOKENS = _BASE + _BASE**2
"""Answers are made of the tokens with one or two syllables, about as long as a model's own tokens."""
_PIECE = re.compile(r" ?[A-Za-z]{1,8}| ?[0-9]{1,3}| ?[^\sA-Za-z0-9]{1,3}|\s+")
LIKELY = 24
"""So many tokens are likely at each place; the others share _REST."""
_REST = 0.01
_STEP_NATS = 0.8
"""Each likely token is less likely than the one before by so much."""


class Sequence:
    """A prompt and what has been generated after it. Times are monotonic seconds.

    `tokens` are prompt and output; the KV cache of the first `computed` of them is in `blocks`, and
    `hashes` are the hashes of the full blocks. `decoding` is true while only its last token is not computed.
    Its tokens are a function of `seed` alone.
    """

    __slots__ = (
        "aborted",
        "arrived_s",
        "blocks",
        "cached_tokens",
        "computed",
        "decoding",
        "first_token_s",
        "hashes",
        "last_token_s",
        "max_tokens",
        "on_tokens",
        "output_tokens",
        "preemptions",
        "prompt_tokens",
        "registered",
        "scheduled_s",
        "state",
        "stop_after",
        "tokens",
        "vocabulary",
    )

    def __init__(
        self,
        prompt: list[int],
        *,
        max_tokens: int,
        stop_after: int | None,
        seed: int,
        vocabulary: int,
        arrived_s: float,
        on_tokens: "Callable[[Sequence, list[int], FinishReason | None], None]",
    ) -> None:
        self.tokens = list(prompt)
        self.prompt_tokens = len(prompt)
        self.max_tokens = max_tokens
        self.stop_after = stop_after
        self.vocabulary = vocabulary
        self.state = (seed * _MULTIPLIER + _INCREMENT) & _MASK
        self.on_tokens = on_tokens
        self.output_tokens = 0
        self.computed = 0
        self.decoding = False
        self.registered = 0
        self.blocks: list[int] = []
        self.hashes: list[int] = []
        self.cached_tokens: int | None = None
        self.preemptions = 0
        self.aborted = False
        self.arrived_s = arrived_s
        self.scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None

    def draw(self) -> float:
        """The next number of the sequence's own random stream, uniform in [0, 1)."""
        self.state = (self.state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self.state >> 11) / (1 << 53)

    def generate(self, count: int) -> tuple[list[int], FinishReason | None]:
        """Append up to `count` tokens; less when the sequence ends, whose reason is then given."""
        output = self.output_tokens
        end, reason = self.max_tokens, "length"
        if self.stop_after is not None and self.stop_after <= end:
            end, reason = self.stop_after, "stop"
        new = []
        state, vocabulary = self.state, self.vocabulary
        for _ in range(min(count, end - output)):
            state = (state * _MULTIPLIER + _INCREMENT) & _MASK
            new.append((state >> 33) % vocabulary)
        self.state = state
        self.tokens += new
        self.output_tokens = output = output + len(new)
        return new, (reason if output >= end else None)  # type: ignore[return-value]


@cache
def word(token: int) -> str:
    """The word of a token, with the space before it: one syllable below 100, two below 10,100, and so on."""
    syllables = []
    token += 1
    while token > 0:
        token, digit = divmod(token - 1, _BASE)
        syllables.append(_SYLLABLES[digit])
    return " " + "".join(reversed(syllables))


@cache
def word_bytes(token: int) -> bytes:
    """The same in UTF-8."""
    return word(token).encode()


def _token_of(piece: str, vocabulary: int) -> int:
    body = piece.strip().lower()
    if len(body) % 2 == 0 and body:
        number = 0
        for start in range(0, len(body), 2):
            digit = _NUMBER_OF.get(body[start : start + 2])
            if digit is None:
                break
            number = number * _BASE + digit + 1
        else:
            if number <= vocabulary:
                return number - 1
    return crc32(piece.encode()) % vocabulary


def tokenize(text: str, vocabulary: int) -> list[int]:
    """The tokens of a text, each below `vocabulary`."""
    return [_token_of(piece, vocabulary) for piece in _PIECE.findall(text)]


def detokenize(tokens: list[int]) -> str:
    """The words of tokens, as one text."""
    return "".join(map(word, tokens))


def chat_prompt(messages: list[dict[str, object]]) -> str:
    """The text that a chat template makes of messages, ending where the assistant is to go on."""
    turns = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        turns.append(f"<|{message.get('role', 'user')}|>\n{content or ''}\n")
    return "".join(turns) + "<|assistant|>\n"


@lru_cache(maxsize=1 << 14)
def likely(before: tuple[int, ...], vocabulary: int, damage: float) -> dict[int, float]:
    """The likely tokens after two others, likeliest first, with their log-probabilities."""
    random = Random(hash(before))  # noqa: S311 - a made-up language, no secret; the hash of numbers is fixed
    tokens = random.sample(range(vocabulary), min(LIKELY, vocabulary))
    weights = [-_STEP_NATS * place + damage * random.gauss(0, 1) for place in range(len(tokens))]
    total = log(sum(map(exp, weights))) - log(1 - _REST)
    return dict(sorted(zip(tokens, (weight - total for weight in weights), strict=True), key=lambda pair: -pair[1]))


def greedy(prompt: list[int], count: int, vocabulary: int, damage: float) -> list[int]:
    """The likeliest `count` tokens after a prompt."""
    tokens = list(prompt[-2:])
    for _ in range(count):
        tokens.append(next(iter(likely(tuple(tokens[-2:]), vocabulary, damage))))
    return tokens[len(prompt[-2:]) :]


def scored(tokens: list[int], start: int, top: int, vocabulary: int, damage: float) -> list[dict[int, float]]:
    """From the place `start` on: the `top` likeliest tokens and the one that stands there, with log-probabilities."""
    rows = []
    for place in range(start, len(tokens)):
        distribution = likely(tuple(tokens[max(0, place - 2) : place]), vocabulary, damage)
        row = dict(list(distribution.items())[:top])
        row[tokens[place]] = distribution.get(tokens[place], log(_REST / max(1, vocabulary - LIKELY)))
        rows.append(row)
    return rows
