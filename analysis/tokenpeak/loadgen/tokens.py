"""Token ids and words of known length, for an engine whose vocabulary is not known.

vLLM reports neither its vocabulary's size nor its special ids, but it tokenizes: the ids of a plain text are ids that
exist and mean nothing special. Where there is no `/tokenize`, ids 200 to 799 have to do: above the single bytes and
control ids that vocabularies begin with, and below the size of any vocabulary in use. A word is one that the engine
counts as one token after a space; without `/tokenize` each word is taken for one, and `usage` says what it was.
"""

from dataclasses import dataclass
from pathlib import Path

import httpx

from tokenpeak.http_answer import HttpAnswerError, ask

SAFE_IDS = tuple(range(200, 800))
TOKENS_LIMIT_BYTES = 1 << 20
ID_LIMIT = 1 << 31

_WORDS = tuple((Path(__file__).parent / "words.txt").read_text().split())


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What prompts may be made of."""

    ids: tuple[int, ...]
    words: tuple[str, ...]


UNKNOWN = Vocabulary(ids=SAFE_IDS, words=_WORDS)


async def learn(client: httpx.AsyncClient, model: str) -> Vocabulary:
    """The vocabulary as the server's `/tokenize` shows it; UNKNOWN where it has none."""

    async def tokenize(text: str) -> list[int] | None:
        try:
            answer = await ask(
                client,
                "/tokenize",
                body={"model": model, "prompt": text, "add_special_tokens": False},
                limit_bytes=TOKENS_LIMIT_BYTES,
            )
            tokens = answer.json()["tokens"] if answer.status == httpx.codes.OK else None
        except (HttpAnswerError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < ID_LIMIT for token in tokens):
            return None
        return tokens

    together = await tokenize("".join(f" {word}" for word in _WORDS))
    if not together:
        return UNKNOWN
    ids = tuple(sorted(set(together)))
    if len(ids) < 32:
        return UNKNOWN
    if len(together) == len(_WORDS):
        return Vocabulary(ids=ids, words=_WORDS)
    single = [word for word in _WORDS[::4] if len(await tokenize(f" {word}") or []) == 1]
    return Vocabulary(ids=ids, words=tuple(single) or _WORDS)
