"""Answer to a request: its sequences, and the events or the body that vLLM sends of them, key for key, in its order.

Source: vllm/entrypoints/openai/{completion,chat_completion}/serving.py (0.32.0). Older releases are played the same.
"""

import json
import time
from dataclasses import dataclass
from math import log
from typing import Any
from zlib import crc32

from tokenpeak.sim.http import HttpReply
from tokenpeak.sim.pace import Pace
from tokenpeak.sim.sequence import SPOKEN_TOKENS, FinishReason, Sequence, detokenize, greedy, scored, word_bytes
from tokenpeak.sim.settings import Release, Settings

DONE = b"data: [DONE]\n\n"


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(body) + b"\n\n"


def encode(body: object) -> bytes:
    """JSON as pydantic writes it: no spaces, no escapes beyond what is needed."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


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
class GenerationRequest:
    """A request for tokens, checked."""

    request_id: str
    model: str
    chat: bool
    prompts: tuple[list[int], ...]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    seed: int
    stream: bool
    include_usage: bool
    token_ids: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    greedy: bool = False
    """The likeliest tokens are the answer, where their ids or log-probabilities are asked for."""


class Chunks:
    """Writes the answer to one request. `index` is the choice; texts need no JSON escapes.

    A token's event is put together from parts made once, since there are thousands of them a second.
    """

    def __init__(self, request: GenerationRequest, release: Release) -> None:
        self._chat = request.chat
        self._fingerprint = f"vllm-{release.text}-{crc32(request.model.encode()):08x}"
        self._prompt_tokens = sum(map(len, request.prompts))
        self._include_usage = request.include_usage
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        created = int(time.time())
        self._base = {"id": request.request_id, "object": kind, "created": created, "model": request.model}
        self._head = b"data: " + encode(self._base)[:-1] + b',"choices":[{"index":'
        if self._chat:
            self._open = b',"delta":{"content":"'
            self._close = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]'
        else:
            self._open = b',"text":"'
            self._close = (
                b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]'
            )

    def role(self, index: int) -> bytes:
        """The event that opens a chat's choice."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return event({**self._base, "choices": [choice], "prompt_token_ids": None, "prompt_text": None})

    def text(self, index: int, text: bytes) -> bytes:
        """The event of new text."""
        return b"%b%d%b%b%b}\n\n" % (self._head, index, self._open, text, self._close)

    def last(self, index: int, text: str, reason: str, *, only: bool) -> bytes:
        """The event that carries a choice's finish reason; `only`: no other event follows but the usage's."""
        said = {"delta": {"content": text}} if self._chat else {"text": text}
        choice = {"index": index, **said, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        choice |= {"token_ids": None} if self._chat else {"prompt_token_ids": None, "token_ids": None}
        body = {**self._base, "choices": [choice]}
        if only and not self._include_usage:
            body["system_fingerprint"] = self._fingerprint
        return event(body)

    def usage(self, output_tokens: int, cached_tokens: int | None) -> bytes:
        """The event that counts tokens, empty unless it was asked for."""
        if not self._include_usage:
            return b""
        usage = self._counts(output_tokens)
        if cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        return event({**self._base, "choices": [], "usage": usage, "system_fingerprint": self._fingerprint})

    def whole(
        self,
        texts: list[str],
        reasons: list[str],
        output_tokens: int,
        cached_tokens: int | None,
        scores: list[dict[str, Any]],
    ) -> bytes:
        """The body of an answer that is not streamed; `scores` are more fields of each choice, or none."""
        details = None
        if cached_tokens is not None:
            details = {"cached_tokens": cached_tokens, "created_cache_tokens": None, "multimodal_tokens": None}
        usage = self._counts(output_tokens) | {"prompt_tokens_details": details, "completion_tokens_details": None}
        choices = [self._choice(index, *said) for index, said in enumerate(zip(texts, reasons, strict=True))]
        for choice, more in zip(choices, scores, strict=False):
            choice |= more
        body = {**self._base, "choices": choices, "service_tier": None, "system_fingerprint": self._fingerprint}
        body["usage"] = usage
        if self._chat:
            body["object"] = "chat.completion"
            body |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        return encode(body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None})

    def _choice(self, index: int, text: str, reason: str) -> dict[str, Any]:
        ending = {"logprobs": None, "finish_reason": reason, "stop_reason": None, "token_ids": None}
        if not self._chat:
            more = {"prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None}
            return {"index": index, "text": text, **ending, **more}
        message = {"role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None}
        message |= {"function_call": None, "reasoning": None}
        return {"index": index, "message": message, **ending, "routed_experts": None}

    def _counts(self, output_tokens: int) -> dict[str, Any]:
        total = self._prompt_tokens + output_tokens
        return {"prompt_tokens": self._prompt_tokens, "total_tokens": total, "completion_tokens": output_tokens}


class ApiAnswer:
    """Takes the tokens of its sequences and writes them to the client."""

    def __init__(
        self,
        request: GenerationRequest,
        reply: HttpReply,
        settings: Settings,
        pace: Pace,
        dirty: "list[ApiAnswer]",
        *,
        damage: float,
    ) -> None:
        self._damage = damage
        self._request = request
        self._reply = reply
        self._settings = settings
        self._pace = pace
        self._dirty = dirty
        self._index: dict[Sequence, int] = {}
        self._texts: list[list[int]] = []
        self._reasons: list[str] = []
        self._left = 0
        self._is_dirty = False
        self._chunks = Chunks(request, settings.release)

    def begin(self) -> None:
        """Queue the sequences; a stream's headers go out at once, as vLLM's do."""
        request, arrived_s = self._request, time.monotonic()
        for prompt in request.prompts:
            seed = crc32(repr((request.seed, 0, len(prompt), prompt[:64], prompt[-64:])).encode())
            sequence = Sequence(
                prompt,
                max_tokens=request.max_tokens,
                stop_after=None,
                seed=seed,
                vocabulary=min(SPOKEN_TOKENS, self._settings.model.vocabulary),
                arrived_s=arrived_s,
                on_tokens=self._on_tokens,
            )
            if not request.ignore_eos:
                length = -MEAN_ANSWER_TOKENS * log(1.0 - sequence.draw())
                sequence.stop_after = max(1, request.min_tokens, round(length))
            self._index[sequence] = len(self._texts)
            self._texts.append([])
            self._reasons.append("")
        self._left = len(self._index)
        self._reply.on_close = self._abort
        if request.stream:
            self._reply.start("text/event-stream; charset=utf-8")
        for sequence in self._index:
            self._pace.submit(sequence)

    def flush(self) -> None:
        """Send the tokens of the step, and the end when everything has come."""
        self._is_dirty = False
        if self._left:
            self._reply.flush()
            return
        cached = self._cached_tokens()
        output = sum(sequence.output_tokens for sequence in self._index)
        if self._request.stream:
            self._reply.write(self._chunks.usage(output, cached) + DONE)
            self._reply.finish()
        else:
            scores = self._scores()
            texts = [detokenize(tokens) for tokens in self._texts]
            self._reply.send(200, self._chunks.whole(texts, self._reasons, output, cached, scores))

    def _scores(self) -> list[dict[str, Any]]:
        """Tokens and log-probabilities of each choice; empty where none were asked for."""
        request, vocabulary, damage = self._request, self._settings.model.vocabulary, self._damage
        if not (request.token_ids or request.logprobs is not None or request.prompt_logprobs is not None):
            return []
        scores = []
        for sequence, index in self._index.items():
            prompt = sequence.tokens[: sequence.prompt_tokens]
            if request.greedy:
                self._texts[index] = greedy(prompt, sequence.output_tokens, vocabulary, damage)
            tokens, choice = self._texts[index], dict[str, Any]()
            if request.token_ids:
                choice |= {"prompt_token_ids": prompt, "token_ids": tokens}
            if request.logprobs is not None:
                rows = scored([*prompt, *tokens], len(prompt), request.logprobs, vocabulary, damage)
                choice["logprobs"] = {
                    "text_offset": [],
                    "token_logprobs": [row[token] for row, token in zip(rows, tokens, strict=True)],
                    "tokens": [f"token_id:{token}" for token in tokens],
                    "top_logprobs": [{f"token_id:{token}": value for token, value in row.items()} for row in rows],
                }
            if request.prompt_logprobs is not None:
                rows = scored(prompt, 1, request.prompt_logprobs, vocabulary, damage)
                choice["prompt_logprobs"] = [
                    None,
                    *({str(token): {"logprob": value} for token, value in row.items()} for row in rows),
                ]
            scores.append(choice)
        return scores

    def _on_tokens(self, sequence: Sequence, tokens: list[int], reason: FinishReason | None) -> None:
        index = self._index[sequence]
        if reason is not None:
            self._left -= 1
            self._reasons[index] = reason
        if not self._request.stream:
            self._texts[index] += tokens
            if self._left:
                return
        else:
            self._write(sequence, index, tokens, reason)
        if not self._is_dirty:
            self._is_dirty = True
            self._dirty.append(self)

    def _write(self, sequence: Sequence, index: int, tokens: list[int], reason: FinishReason | None) -> None:
        output = sequence.output_tokens
        if self._request.chat and output == len(tokens):
            self._reply.write(self._chunks.role(index))
        if reason is None:
            text = word_bytes(tokens[0]) if len(tokens) == 1 else detokenize(tokens).encode()
            self._reply.write(self._chunks.text(index, text))
        else:
            only = len(self._index) == 1
            self._reply.write(self._chunks.last(index, detokenize(tokens), reason, only=only))

    def _cached_tokens(self) -> int | None:
        if not self._settings.arguments.enable_prompt_tokens_details:
            return None
        return sum(sequence.cached_tokens or 0 for sequence in self._index)

    def _abort(self) -> None:
        for sequence, index in self._index.items():
            if not self._reasons[index]:
                self._pace.abort(sequence)
