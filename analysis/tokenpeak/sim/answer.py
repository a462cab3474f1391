"""Answer to a request: its sequences, and what is sent of them."""

import time
from dataclasses import dataclass
from math import log
from typing import Any
from zlib import crc32

from tokenpeak.sim.chunks import DONE, Chunks
from tokenpeak.sim.http import HttpReply
from tokenpeak.sim.pace import Pace
from tokenpeak.sim.sequence import FinishReason, Sequence
from tokenpeak.sim.settings import Settings
from tokenpeak.sim.text import SPOKEN_TOKENS, detokenize, word_bytes
from tokenpeak.sim.token_scores import greedy, scored

MEAN_ANSWER_TOKENS = 256
"""Mean length of an answer that may end by itself; lengths are drawn from an exponential distribution."""


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, param: str | None, *, kind: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.kind = kind or ("BadRequestError" if status < 500 else "InternalServerError")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a request asks for."""

    request_id: str
    model: str
    chat: bool
    prompts: tuple[list[int], ...]
    choices: int
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    seed: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    token_ids: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    greedy: bool = False
    """The likeliest tokens are the answer, where their ids or log-probabilities are asked for."""


class ApiAnswer:
    """Takes the tokens of its sequences and writes them to the client."""

    def __init__(
        self,
        asked: Asked,
        reply: HttpReply,
        settings: Settings,
        pace: Pace,
        dirty: "list[ApiAnswer]",
        *,
        stall_after: float | None,
        damage: float = 0.0,
    ) -> None:
        self._damage = damage
        self._asked = asked
        self._reply = reply
        self._settings = settings
        self._pace = pace
        self._dirty = dirty
        self._stall_after = stall_after
        self._index: dict[Sequence, int] = {}
        self._texts: list[list[int]] = []
        self._reasons: list[str] = []
        self._left = 0
        self._is_dirty = False
        self._chunks = Chunks(
            chat=asked.chat,
            request_id=asked.request_id,
            created=int(time.time()),
            model=asked.model,
            release=settings.release,
            prompt_tokens=sum(map(len, asked.prompts)),
            include_usage=asked.include_usage,
            continuous_usage=asked.continuous_usage,
        )

    def begin(self) -> None:
        """Queue the sequences; a stream's headers go out at once, as vLLM's do."""
        asked, arrived_s = self._asked, time.monotonic()
        for prompt in asked.prompts:
            for choice in range(asked.choices):
                seed = crc32(repr((asked.seed, choice, len(prompt), prompt[:64], prompt[-64:])).encode())
                sequence = Sequence(
                    prompt,
                    max_tokens=asked.max_tokens,
                    stop_after=None,
                    seed=seed,
                    vocabulary=min(SPOKEN_TOKENS, self._settings.model.vocabulary),
                    arrived_s=arrived_s,
                    on_tokens=self._on_tokens,
                )
                if not asked.ignore_eos:
                    sequence.stop_after = max(1, asked.min_tokens, round(MEAN_ANSWER_TOKENS * _exponential(sequence)))
                self._index[sequence] = len(self._texts)
                self._texts.append([])
                self._reasons.append("")
        self._left = len(self._index)
        self._reply.on_close = self._abort
        if asked.stream:
            self._reply.start("text/event-stream; charset=utf-8")
        for sequence in self._index:
            self._pace.submit(sequence)

    def flush(self) -> None:
        """Send what the step brought, and the end when everything has come."""
        self._is_dirty = False
        if self._left:
            self._reply.flush()
            return
        cached = self._cached_tokens()
        output = sum(sequence.output_tokens for sequence in self._index)
        if self._asked.stream:
            self._reply.write(self._chunks.usage(output, cached) + DONE)
            self._reply.finish()
        else:
            scores = self._scores()
            texts = [detokenize(tokens) for tokens in self._texts]
            self._reply.send(200, self._chunks.whole(texts, self._reasons, output, cached, scores))

    def _scores(self) -> list[dict[str, Any]]:
        """What each choice holds of tokens and their log-probabilities; empty where nothing was asked for."""
        asked, vocabulary, damage = self._asked, self._settings.model.vocabulary, self._damage
        if not (asked.token_ids or asked.logprobs is not None or asked.prompt_logprobs is not None):
            return []
        found = []
        for sequence, index in self._index.items():
            prompt = sequence.tokens[: sequence.prompt_tokens]
            if asked.greedy:
                self._texts[index] = greedy(prompt, sequence.output_tokens, vocabulary, damage)
            tokens, choice = self._texts[index], dict[str, Any]()
            if asked.token_ids:
                choice |= {"prompt_token_ids": prompt, "token_ids": tokens}
            if asked.logprobs is not None:
                rows = scored([*prompt, *tokens], len(prompt), asked.logprobs, vocabulary, damage)
                choice["logprobs"] = {
                    "text_offset": [],
                    "token_logprobs": [row[token] for row, token in zip(rows, tokens, strict=True)],
                    "tokens": [f"token_id:{token}" for token in tokens],
                    "top_logprobs": [{f"token_id:{token}": value for token, value in row.items()} for row in rows],
                }
            if asked.prompt_logprobs is not None:
                rows = scored(prompt, 1, asked.prompt_logprobs, vocabulary, damage)
                choice["prompt_logprobs"] = [
                    None,
                    *({str(token): {"logprob": value} for token, value in row.items()} for row in rows),
                ]
            found.append(choice)
        return found

    def _on_tokens(self, sequence: Sequence, tokens: list[int], reason: FinishReason | None) -> None:
        index = self._index[sequence]
        if reason is not None:
            self._left -= 1
            self._reasons[index] = reason
        if not self._asked.stream:
            self._texts[index] += tokens
            if self._left:
                return
        elif self._stall_after is not None and sequence.output_tokens > self._stall_after:
            self._left += reason is not None
            return
        else:
            self._write(sequence, index, tokens, reason)
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)

    def _write(self, sequence: Sequence, index: int, tokens: list[int], reason: FinishReason | None) -> None:
        output = sequence.output_tokens
        if self._asked.chat and output == len(tokens):
            self._reply.write(self._chunks.role(index))
        if reason is None:
            text = word_bytes(tokens[0]) if len(tokens) == 1 else detokenize(tokens).encode()
            self._reply.write(self._chunks.text(index, text, output))
        else:
            only = len(self._index) == 1
            self._reply.write(self._chunks.last(index, detokenize(tokens), output, reason, only=only))

    def _cached_tokens(self) -> int | None:
        if not self._settings.arguments.enable_prompt_tokens_details:
            return None
        return sum(sequence.cached_tokens or 0 for sequence in self._index)

    def _abort(self) -> None:
        for sequence, index in self._index.items():
            if not self._reasons[index]:
                self._pace.abort(sequence)


def _exponential(sequence: Sequence) -> float:
    return -log(1.0 - sequence.draw())
