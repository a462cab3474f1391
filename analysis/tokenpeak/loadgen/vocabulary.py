"""The tokens and words that prompts are made of: the model's own, as its server shows them.

A word is one token wherever it stands behind a space, so that a text has as many tokens as words. Words come from the
whole vocabulary, in all its languages: a short list of English ones repeats itself within a prompt, which flatters
speculation by n-grams and sends all tokens to the same experts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tokenpeak.http_answer import HttpAnswerError, ask

ANSWER_LIMIT_BYTES = 1 << 20
METRICS_LIMIT_BYTES = 8 << 20
ID_LIMIT = 1 << 31
_BLOCK_SIZE = re.compile(r'^vllm:cache_config_info\{[^}]{0,4000}\bblock_size="([1-9]\d{0,5})"', re.MULTILINE)
_WORD = re.compile(r" [^\W\d_]{2,}")
WORDS = tuple((Path(__file__).parent / "words.txt").read_text().split())
SIZES = (32_000, 128_000, 256_000)
"""Of vocabularies: a third of the ids that are looked at is below the first, a third below the second."""
LOOKED_AT = 12_288
"""Ids whose words are looked at; of the half of them that are whole words, some 4,000 to 6,000 remain."""
CHUNK = 512
"""Ids of one question: a server refuses what is longer than its context."""
MARKS = ("\x7f", "\n")
"""What may stand between texts of tokens: the first that is one token, and is in few others."""
FEWEST = 1000
"""With fewer words of its own than that a vocabulary is not known."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Token ids and words that prompts are made of."""

    ids: tuple[int, ...]
    words: tuple[str, ...]
    block_tokens: int = 16
    """Tokens of a block of the engine's prefix cache, which it serves whole."""

    def drawn(self, number: int, random: np.random.Generator) -> list[int]:
        """`number` places of the vocabulary by chance; a place is an id and a word."""
        return [int(place) for place in random.integers(0, 1 << 30, max(0, number))]

    def tokens(self, places: Sequence[int]) -> list[int]:
        """The ids of places."""
        return [self.ids[place % len(self.ids)] for place in places]

    def text(self, places: Sequence[int]) -> str:
        """The words of places, one token each."""
        return " ".join(self.words[place % len(self.words)] for place in places)


UNKNOWN = Vocabulary(ids=tuple(range(200, 800)), words=WORDS)


async def learn(client: httpx.AsyncClient, model: str) -> Vocabulary:
    """The vocabulary as the server shows it, else English words, else UNKNOWN's; blocks as its `/metrics` has them."""
    engine = _Tokenizer(client, model)
    vocabulary = await _own(engine) or await _english(engine)
    return replace(vocabulary, block_tokens=await _block_tokens(client))


class _Tokenizer:
    """The server's `/tokenize` and `/detokenize`; both answer None where the server does not."""

    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self._client = client
        self._model = model

    async def ids(self, text: str) -> list[int] | None:
        """The tokens of a text, without those that begin or end one."""
        tokens = await self._answer("/tokenize", "tokens", prompt=text, add_special_tokens=False)
        if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < ID_LIMIT for token in tokens):
            return None
        return tokens

    async def text(self, ids: Sequence[int]) -> str | None:
        """The text of tokens."""
        text = await self._answer("/detokenize", "prompt", tokens=list(ids))
        return text if isinstance(text, str) else None

    async def _answer(self, path: str, key: str, **body: object) -> Any:
        try:
            answer = await ask(self._client, path, body={"model": self._model, **body}, limit_bytes=ANSWER_LIMIT_BYTES)
            return answer.json()[key] if answer.status == httpx.codes.OK else None
        except (HttpAnswerError, ValueError, KeyError, TypeError):
            return None


async def _own(engine: _Tokenizer) -> Vocabulary | None:
    """Words of the model's own vocabulary, from all of it; None where the server does not show it."""
    marks = {mark: await engine.ids(mark) for mark in MARKS}
    mark, between = next(((mark, ids[0]) for mark, ids in marks.items() if ids and len(ids) == 1), ("", None))
    if between is None:
        return None
    random = np.random.default_rng(0)
    looked_at = np.unique(np.concatenate([random.integers(0, size, LOOKED_AT // len(SIZES)) for size in SIZES]))
    words: dict[str, int] = {}
    for begin in range(0, len(looked_at), CHUNK):
        ids = looked_at[begin : begin + CHUNK].tolist()
        # Texts of tokens run together; a mark between them keeps them apart.
        text = await engine.text([each for token in ids for each in (token, between)])
        if text is None:
            # Beyond the vocabulary's end.
            break
        pieces = text.split(mark)
        if len(pieces) == len(ids) + 1:
            words |= {piece: token for piece, token in zip(pieces, ids, strict=False) if _WORD.fullmatch(piece)}
    kept: list[tuple[str, int]] = []
    for begin in range(0, len(words), CHUNK):
        kept += await _single(engine, list(words.items())[begin : begin + CHUNK])
    if len(kept) < FEWEST:
        return None
    return Vocabulary(ids=tuple(token for _, token in kept), words=tuple(word[1:] for word, _ in kept))


async def _single(engine: _Tokenizer, words: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those of the words that are their one token, also between others."""
    if not words:
        return []
    tokens = await engine.ids("a" + "".join(word for word, _ in words))
    if tokens is not None and tokens[-len(words) :] == [token for _, token in words] and len(tokens) <= len(words) + 2:
        return words
    if len(words) == 1 or tokens is None:
        return []
    half = len(words) // 2
    return [*await _single(engine, words[:half]), *await _single(engine, words[half:])]


async def _english(engine: _Tokenizer) -> Vocabulary:
    """English words, where the server takes each for one token."""
    together = await engine.ids("".join(f" {word}" for word in WORDS))
    ids = tuple(sorted(set(together or ())))
    if not together or len(ids) < 32:
        return UNKNOWN
    if len(together) == len(WORDS):
        return Vocabulary(ids=ids, words=WORDS)
    single = [word for word in WORDS[::4] if len(await engine.ids(f" {word}") or []) == 1]
    return Vocabulary(ids=ids, words=tuple(single) or WORDS)


async def _block_tokens(client: httpx.AsyncClient) -> int:
    try:
        answer = await ask(client, "/metrics", limit_bytes=METRICS_LIMIT_BYTES)
        found = _BLOCK_SIZE.search(answer.text) if answer.status == httpx.codes.OK else None
    except (HttpAnswerError, ValueError):
        found = None
    return int(found[1]) if found else UNKNOWN.block_tokens
