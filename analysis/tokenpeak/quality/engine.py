"""One model of a server, asked for scores and greedy answers within bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tokenpeak.errors import LoadError
from tokenpeak.http_answer import HttpAnswer, ask
from tokenpeak.loadgen.http.metrics_page import parse
from tokenpeak.quality.answers import TOP_K, UNLIKELY
from tokenpeak.records.quality import TopK

REQUEST_LIMIT_S = 300.0
_BYTES_PER_TOKEN = (TOP_K + 1) * 200
_ID_PREFIX = "token_id:"
_IMPOSSIBLE = -50.0
"""An engine says minus infinity of a token that it masks; JSON has no such number."""


class QualityError(LoadError):
    """An engine that does not answer as the measurement needs."""


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A greedy answer; `scores` is None where the engine gave no log-probabilities with its tokens."""

    prompt_tokens: int
    tokens: tuple[int, ...]
    scores: tuple[TopK, ...] | None
    text: str


class QualityEngine:
    """One model of a server; `processed` counts the tokens that were asked for."""

    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self._client = client
        self._model = model
        self.processed = 0

    async def context(self) -> int | None:
        """The longest prompt and answer together; None where the server does not say."""
        answer = await self._ask("/v1/models")
        try:
            card = next(card for card in answer.json()["data"] if card["id"] == self._model)
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            raise QualityError(f"The server does not serve {self._model}; give the name that it lists.") from error
        context = card.get("max_model_len")
        return context if isinstance(context, int) else None

    async def version(self) -> str | None:
        """The engine's own, None where it has none."""
        answer = await ask(self._client, "/version")
        try:
            version = answer.json()["version"]
        except (ValueError, KeyError, TypeError):
            return None
        return version if isinstance(version, str) else None

    async def count(self, text: str) -> int | None:
        """How many tokens a text has; None where the server does not tokenize."""
        answer = await ask(self._client, "/tokenize", body={"model": self._model, "prompt": text})
        try:
            count = answer.json()["count"]
        except (ValueError, KeyError, TypeError):
            return None
        return count if isinstance(count, int) and count > 0 else None

    async def counters(self) -> Mapping[str, float]:
        """The engine's counters; empty where it has no metrics page."""
        answer = await ask(self._client, "/metrics")
        try:
            return parse(answer.text) if answer.status == httpx.codes.OK else {}
        except ValueError:
            return {}

    async def score(self, text: str) -> tuple[tuple[int, ...], tuple[TopK, ...]]:
        """A text's tokens, and in prefill the likeliest tokens of each place after the first."""
        choice = await self._choice(
            "/v1/completions", {"prompt": text}, len(text), max_tokens=1, ignore_eos=True, prompt_logprobs=TOP_K
        )
        tokens, rows = _ids(choice, "prompt_token_ids"), choice.get("prompt_logprobs")
        self.processed += len(tokens) + 1
        try:
            scores = tuple(
                {int(token): float(entry["logprob"]) for token, entry in row.items()}
                for row in rows[1:]  # type: ignore[index]
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise QualityError("The engine does not return prompt_logprobs as vLLM does.") from error
        return tokens, _checked(scores, tokens[1:])

    async def generate(self, prompt: str, count: int) -> Generated:
        """`count` tokens, greedily."""
        choice = await self._choice(
            "/v1/completions", {"prompt": prompt}, len(prompt), max_tokens=count, ignore_eos=True, logprobs=TOP_K
        )
        prompt_tokens, tokens = len(_ids(choice, "prompt_token_ids")), _ids(choice, "token_ids")
        self.processed += prompt_tokens + len(tokens)
        return Generated(
            prompt_tokens=prompt_tokens, tokens=tokens, scores=_decoded(choice, tokens), text=str(choice.get("text"))
        )

    async def answer(self, asked: Mapping[str, Any], count: int) -> str:
        """The answer's text to a prompt or to messages, greedily, to its end or `count` tokens."""
        chat = "messages" in asked
        size = len(str(asked))
        choice = await self._choice(
            "/v1/chat/completions" if chat else "/v1/completions", asked, size, max_tokens=count
        )
        text = (choice.get("message") or {}).get("content") if chat else choice.get("text")
        self.processed += count + size // 3
        return str(text or "")

    async def _choice(self, path: str, asked: Mapping[str, Any], size: int, **more: object) -> dict[str, Any]:
        body = {
            "model": self._model,
            "temperature": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **asked,
            **more,
        }
        if "messages" in asked:
            del body["return_tokens_as_token_ids"]
        answer = await self._ask(path, body, limit_bytes=(1 << 20) + size * _BYTES_PER_TOKEN)
        try:
            choice = answer.json()["choices"][0]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise QualityError("The engine's completion has no choices.") from error
        if not isinstance(choice, dict):
            raise QualityError("The engine's completion has no choices.")
        return choice

    async def _ask(self, path: str, body: object = None, limit_bytes: int = 1 << 20) -> HttpAnswer:
        answer = await ask(self._client, path, body=body, limit_bytes=limit_bytes, limit_s=REQUEST_LIMIT_S)
        if answer.status != httpx.codes.OK:
            raise QualityError(f"{path} answered {answer.status}: {answer.text[:300]}")
        return answer


def _ids(choice: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Token ids of an answer; at least one."""
    try:
        tokens = tuple(map(int, choice[key]))
    except (KeyError, TypeError, ValueError) as error:
        words = "The engine does not return token ids (return_token_ids); vLLM does from 0.10.2 on."
        raise QualityError(words) from error
    if not tokens:
        raise QualityError("The engine answered without a token.")
    return tokens


def _decoded(choice: Mapping[str, Any], tokens: Sequence[int]) -> tuple[TopK, ...] | None:
    """The log-probabilities that came with generated tokens; None where the engine gave none."""
    rows = (choice.get("logprobs") or {}).get("top_logprobs")
    if not isinstance(rows, list):
        return None
    try:
        scores = tuple(
            {int(name.removeprefix(_ID_PREFIX)): float(value) for name, value in row.items()} for row in rows
        )
    except (TypeError, ValueError, AttributeError):
        return None
    return _checked(scores, tokens)


def _checked(scores: tuple[TopK, ...], tokens: Sequence[int]) -> tuple[TopK, ...]:
    """The scores, one for each token and holding it; log-probabilities are at most 0 and no NaN."""
    if len(scores) != len(tokens) or any(token not in score for token, score in zip(tokens, scores, strict=True)):
        raise QualityError("The engine scored other tokens than it was asked for.")
    if not all(value <= 1e-3 for score in scores for value in score.values()):
        raise QualityError("The engine gave a log-probability that is none: above 0, or not a number.")
    return tuple(
        {each: round(max(value, _IMPOSSIBLE), 4) for each, value in score.items() if value >= UNLIKELY or each == token}
        for token, score in zip(tokens, scores, strict=True)
    )
