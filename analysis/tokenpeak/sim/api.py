"""vLLM's HTTP interface over the simulated engine: routes, the API key, and what each request may ask.

Source: vllm/entrypoints/openai/api_server.py and serve/ (0.32.0), compared with the running server.
"""

import json
import math
import time
from collections.abc import Callable
from random import Random
from typing import Any

from tokenpeak.sim.answer import ApiAnswer, ApiError, GenerationRequest, encode
from tokenpeak.sim.engine_metrics import Counters, metrics_page
from tokenpeak.sim.http import HttpReply, HttpRequest
from tokenpeak.sim.pace import Pace
from tokenpeak.sim.sequence import chat_prompt, tokenize
from tokenpeak.sim.settings import Settings
from tokenpeak.sim.simulated_node import CUDA_ERROR, Faults
from tokenpeak.sim.startup import out_of_memory

MAX_LOGPROBS = 20
"""vLLM's default of --max-logprobs."""
_GUARDED = ("/v1", "/v2", "/inference")


class Api:
    """Answers requests. `dirty` are the streams that got something in the step now ending."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        faults: Faults,
        *,
        seed: int,
        crash: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.faults = faults
        self.pace: Pace | None = None
        self.dirty: list[ApiAnswer] = []
        self._random = Random(seed)  # noqa: S311 - names of answers, not secrets
        self._seed = seed
        self._crash = crash
        self._generations = 0
        self._routes: dict[tuple[str, str], Callable[[HttpRequest, HttpReply], None]] = {
            ("GET", "/health"): lambda _, reply: reply.send(200, b""),
            ("GET", "/version"): lambda _, reply: reply.send(200, encode({"version": settings.release.text})),
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/v1/completions"): self._completion,
            ("POST", "/v1/chat/completions"): self._chat,
        }

    def handle(self, request: HttpRequest, reply: HttpReply) -> None:
        """Answer a request, now or as the engine gets to it."""
        if request.path.startswith(_GUARDED) and not self._allowed(request):
            reply.send(401, b'{"error":"Unauthorized"}')
            return
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = any(path == request.path for _, path in self._routes)
            status, detail = (405, "Method Not Allowed") if known else (404, "Not Found")
            reply.send(status, encode({"detail": detail}))
            return
        try:
            route(request, reply)
        except ApiError as failed:
            body = {"message": str(failed), "type": failed.kind, "param": failed.param, "code": failed.status}
            reply.send(failed.status, encode({"error": body}))

    def flush(self) -> None:
        """Send what the step gave to each stream."""
        for answer in self.dirty:
            answer.flush()
        self.dirty.clear()

    def _allowed(self, request: HttpRequest) -> bool:
        keys = self.settings.api_keys
        if not keys:
            return True
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and key in keys

    def _metrics(self, _: HttpRequest, reply: HttpReply) -> None:
        reply.send(200, metrics_page(self.counters).encode(), "text/plain; version=1.0.0; charset=utf-8")

    def _models(self, _: HttpRequest, reply: HttpReply) -> None:
        card = {
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": self.settings.arguments.model,
            "parent": None,
            "max_model_len": self.settings.max_model_len,
        }
        names = self.settings.served_names
        cards = [{"id": name, **card} for name in names]
        cards += [{"id": name, **card, "parent": names[0]} for name in self.settings.adapters]
        reply.send(200, encode({"object": "list", "data": cards}))

    def _tokenize(self, request: HttpRequest, reply: HttpReply) -> None:
        body = _body(request)
        text = body.get("prompt")
        tokens = self._tokens(text if text is not None else chat_prompt(body.get("messages") or []))
        limit = self.settings.max_model_len
        reply.send(200, encode({"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": None}))

    def _completion(self, request: HttpRequest, reply: HttpReply) -> None:
        body = _body(request)
        self._check_model(body)
        prompt = body.get("prompt")
        if not prompt:
            raise ApiError(
                400, "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)", "prompt"
            )
        several = isinstance(prompt, list) and not isinstance(prompt[0], int)
        prompts = [self._tokens(one) for one in (prompt if several else [prompt])]
        self._generate(request, reply, body, prompts, chat=False, asked_tokens=body.get("max_tokens", 16))

    def _chat(self, request: HttpRequest, reply: HttpReply) -> None:
        body = _body(request)
        self._check_model(body)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ApiError(400, "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages')}", None)
        wanted = body.get("max_completion_tokens", body.get("max_tokens"))
        self._generate(request, reply, body, [self._tokens(chat_prompt(messages))], chat=True, asked_tokens=wanted)

    def _generate(
        self,
        request: HttpRequest,
        reply: HttpReply,
        body: dict[str, Any],
        prompts: list[list[int]],
        *,
        chat: bool,
        asked_tokens: object,
    ) -> None:
        assert self.pace is not None, "the engine has started"
        self._generations += 1
        self._play_faults()
        longest = max(map(len, prompts))
        name = request.headers.get("x-request-id") or f"{self._random.getrandbits(64):016x}"
        options = body.get("stream_options") or {}
        wanted = GenerationRequest(
            request_id=f"{'chatcmpl' if chat else 'cmpl'}-{name}",
            model=body.get("model") or self.settings.served_names[0],
            chat=chat,
            prompts=tuple(prompts),
            max_tokens=self._max_tokens(asked_tokens, longest),
            min_tokens=int(body.get("min_tokens") or 0),
            ignore_eos=bool(body.get("ignore_eos")),
            seed=body["seed"] if isinstance(body.get("seed"), int) else self._seed,
            stream=bool(body.get("stream")),
            include_usage=bool(options.get("include_usage")),
            token_ids=bool(body.get("return_token_ids")),
            logprobs=_top(body, "logprobs"),
            prompt_logprobs=_top(body, "prompt_logprobs"),
            greedy=body.get("temperature") == 0,
        )
        damage = self.faults.get("damaged_answers", 0.0)
        ApiAnswer(wanted, reply, self.settings, self.pace, self.dirty, damage=damage).begin()

    def _play_faults(self) -> None:
        faults, memory = self.faults, self.settings.memory.gpu_memory_utilization
        if self._generations >= faults.get("crash_after_requests", math.inf):
            self._crash(CUDA_ERROR)
        is_alone = self.counters.running + self.counters.waiting == 0
        if memory > faults.get("oom_under_load", math.inf) and not is_alone:
            self._crash(out_of_memory(self.settings, self.settings.devices.gpu.usable_bytes, "").error)
        if "error_500" in faults and self._generations % max(1, int(faults["error_500"])) == 0:
            raise ApiError(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", None)

    def _max_tokens(self, wanted: object, prompt_tokens: int) -> int:
        limit = self.settings.max_model_len
        if prompt_tokens >= limit:
            raise _too_long(
                prompt_tokens,
                f"This model's maximum context length is {limit} tokens. However, your prompt contains {prompt_tokens} "
                "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of "
                "the input prompt.",
            )
        if wanted is None:
            return limit - prompt_tokens
        if not isinstance(wanted, int) or wanted < 1:
            message = f"max_tokens must be at least 1, got {wanted}. (parameter=max_tokens, value={wanted})"
            raise ApiError(400, message, "max_tokens")
        if prompt_tokens + wanted > limit:
            raise _too_long(
                prompt_tokens,
                f"This model's maximum context length is {limit} tokens. However, you requested {wanted} output tokens "
                f"and your prompt contains {prompt_tokens} input tokens, for a total of {prompt_tokens + wanted} "
                "tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            )
        return wanted

    def _check_model(self, body: dict[str, Any]) -> None:
        model = body.get("model")
        served = (*self.settings.served_names, *self.settings.adapters)
        if model is not None and model not in served:
            names = ", ".join(served)
            message = f"The model `{model}` does not exist. Valid aliases: {names}."
            raise ApiError(404, message, "model", kind="NotFoundError")

    def _tokens(self, prompt: object) -> list[int]:
        vocabulary = self.settings.model.vocabulary
        if isinstance(prompt, str):
            return tokenize(prompt, vocabulary)
        if not isinstance(prompt, list) or not all(isinstance(token, int) for token in prompt):
            raise ApiError(400, "1 validation error:\n  {'type': 'string_type', 'loc': ('body', 'prompt')}", None)
        if prompt and max(prompt) >= vocabulary:
            raise ApiError(400, f"Token id {max(prompt)} is out of vocabulary", None)
        return prompt


def _too_long(prompt_tokens: int, message: str) -> ApiError:
    return ApiError(400, f"{message} (parameter=input_tokens, value={prompt_tokens})", "input_tokens")


def _top(body: dict[str, Any], name: str) -> int | None:
    """How many of the likeliest tokens a completion is to list; None: none."""
    wanted = body.get(name)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or "prompt" not in body:
        return None
    if wanted > MAX_LOGPROBS:
        kind = "prompt logprobs" if name == "prompt_logprobs" else "sample logprobs"
        words = f"Requested {kind} of {wanted}, which is greater than max allowed: {MAX_LOGPROBS}"
        raise ApiError(400, words, name)
    return wanted


def _body(request: HttpRequest) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except ValueError as error:
        raise ApiError(
            400, f"1 validation error:\n  {{'type': 'json_invalid', 'msg': 'JSON decode error: {error}'}}", "body",
            kind="Bad Request",
        ) from error  # fmt: skip
    if not isinstance(body, dict):
        raise ApiError(400, "1 validation error:\n  {'type': 'model_attributes_type', 'loc': ('body',)}", "body")
    return body
