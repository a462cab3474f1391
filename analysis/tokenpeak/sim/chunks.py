"""The bodies of OpenAI answers as vLLM writes them: key for key, in its order, by release.

Source: vllm/entrypoints/openai/{completion,chat_completion}/serving.py (0.32.0),
vllm/entrypoints/openai/serving_{completion,chat}.py (0.8.5).
"""

import json
from typing import Any
from zlib import crc32

from tokenpeak.sim.release import Release

DONE = b"data: [DONE]\n\n"


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(body) + b"\n\n"


def encode(body: object) -> bytes:
    """JSON as pydantic writes it: no spaces, no escapes beyond what is needed."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


class Chunks:
    """Writes the answer to one request. `index` is the choice; texts need no JSON escapes.

    A token's event is put together from parts made once, since there are thousands of them a second.
    """

    def __init__(
        self,
        *,
        chat: bool,
        request_id: str,
        created: int,
        model: str,
        release: Release,
        prompt_tokens: int,
        include_usage: bool,
        continuous_usage: bool,
    ) -> None:
        self._chat = chat
        self._modern = release.number >= (0, 12, 0)
        self._fingerprint = f"vllm-{release.text}-{_digest(model)}" if release.number >= (0, 20, 0) else None
        self._prompt_tokens = prompt_tokens
        self._include_usage = include_usage
        self._continuous = continuous_usage
        kind = "chat.completion.chunk" if chat else "text_completion"
        self._base = {"id": request_id, "object": kind, "created": created, "model": model}
        self._head = b"data: " + encode(self._base)[:-1] + b',"choices":[{"index":'
        if chat:
            self._open = b',"delta":{"content":"'
            rest = ',"token_ids":null' if self._modern else ""
            self._close = f'"}},"logprobs":null,"finish_reason":null{rest}}}]'.encode()
        else:
            self._open = b',"text":"'
            rest = ',"prompt_token_ids":null,"token_ids":null' if self._modern else ""
            self._close = f'","logprobs":null,"finish_reason":null,"stop_reason":null{rest}}}]'.encode()
        end = b"}\n\n" if self._modern or chat else b',"usage":null}\n\n'
        self._close_and_end = self._close + end

    def role(self, index: int) -> bytes:
        """The event that opens a chat's choice."""
        delta = {"role": "assistant", "content": ""}
        body = {**self._base, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]}
        if self._modern:
            body |= {"prompt_token_ids": None, "prompt_text": None}
        return event(body)

    def text(self, index: int, text: bytes, output_tokens: int) -> bytes:
        """The event of new text."""
        if self._continuous:
            usage = b',"usage":' + encode(self._counts(output_tokens))
            return b"%b%d%b%b%b%b}\n\n" % (self._head, index, self._open, text, self._close, usage)
        return b"%b%d%b%b%b" % (self._head, index, self._open, text, self._close_and_end)

    def last(self, index: int, text: str, output_tokens: int, reason: str, *, only: bool) -> bytes:
        """The event that carries a choice's finish reason; `only`: no other event follows but the usage's."""
        if self._chat:
            choice: dict[str, Any] = {"index": index, "delta": {"content": text}, "logprobs": None}
            choice |= {"finish_reason": reason, "stop_reason": None}
            if self._modern:
                choice["token_ids"] = None
        else:
            choice = {"index": index, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
            if self._modern:
                choice |= {"prompt_token_ids": None, "token_ids": None}
        body = {**self._base, "choices": [choice]}
        if self._continuous:
            body["usage"] = self._counts(output_tokens)
        elif not self._modern and not self._chat:
            body["usage"] = None
        if only and not self._include_usage and self._fingerprint:
            body["system_fingerprint"] = self._fingerprint
        return event(body)

    def usage(self, output_tokens: int, cached_tokens: int | None) -> bytes:
        """The event that counts tokens, empty unless it was asked for."""
        if not self._include_usage:
            return b""
        usage = self._counts(output_tokens)
        if cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        body = {**self._base, "choices": [], "usage": usage}
        if self._fingerprint:
            body["system_fingerprint"] = self._fingerprint
        return event(body)

    def whole(
        self,
        texts: list[str],
        reasons: list[str],
        output_tokens: int,
        cached_tokens: int | None,
        scores: list[dict[str, Any]],
    ) -> bytes:
        """The body of an answer that is not streamed; `scores` are more fields of each choice, or none."""
        usage = self._counts(output_tokens)
        details = None
        if cached_tokens is not None:
            details = {"cached_tokens": cached_tokens}
            if self._modern:
                details |= {"created_cache_tokens": None, "multimodal_tokens": None}  # type: ignore[dict-item]
        usage["prompt_tokens_details"] = details
        if self._modern:
            usage["completion_tokens_details"] = None
        choices = [
            self._choice(index, text, reason) for index, (text, reason) in enumerate(zip(texts, reasons, strict=True))
        ]
        for choice, more in zip(choices, scores, strict=False):
            choice |= more
        body: dict[str, Any] = {**self._base, "choices": choices}
        if self._chat:
            body["object"] = "chat.completion"
        if self._modern:
            body |= {"service_tier": None, "system_fingerprint": self._fingerprint}
        body["usage"] = usage
        if self._modern and self._chat:
            body |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        elif self._chat:
            body["prompt_logprobs"] = None
        if self._modern:
            body |= {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}
        return encode(body)

    def _choice(self, index: int, text: str, reason: str) -> dict[str, Any]:
        if self._chat:
            message: dict[str, Any] = {"role": "assistant"}
            if self._modern:
                message |= {"content": text, "refusal": None, "annotations": None, "audio": None}
                message |= {"function_call": None, "reasoning": None}
            else:
                message |= {"reasoning_content": None, "content": text, "tool_calls": []}
            choice = {
                "index": index,
                "message": message,
                "logprobs": None,
                "finish_reason": reason,
                "stop_reason": None,
            }
            return choice | ({"token_ids": None, "routed_experts": None} if self._modern else {})
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        if self._modern:
            choice["token_ids"] = None
        choice["prompt_logprobs"] = None
        return choice | ({"prompt_token_ids": None, "routed_experts": None} if self._modern else {})

    def _counts(self, output_tokens: int) -> dict[str, Any]:
        total = self._prompt_tokens + output_tokens
        return {"prompt_tokens": self._prompt_tokens, "total_tokens": total, "completion_tokens": output_tokens}


def _digest(text: str) -> str:
    return f"{crc32(text.encode()):08x}"
