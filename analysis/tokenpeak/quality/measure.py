"""Quality measurement over HTTP: the reference's answers, and a launch's agreement with them.

An answer is scored by `prompt_logprobs` of prompt + answer, in prefill. Drafting and decode kernels do not work there,
so the launch also generates its own answers, all in a batch, and scores these by its own prefill.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import httpx

from tokenpeak.atomic import write_atomically
from tokenpeak.errors import LoadError, TokenpeakError
from tokenpeak.loadgen.answer import HttpAnswer, ask
from tokenpeak.loadgen.job import QUALITY, LoadJob, job_server
from tokenpeak.loadgen.target import Server
from tokenpeak.quality.agreement import TOP_K, kl_lower_bound, log_ratio, regret, same_prefix, same_top1
from tokenpeak.quality.prompts import LONG_PROMPTS, QualityPrompt, built_in_prompts
from tokenpeak.quality.reference import read_reference
from tokenpeak.records.quality import PromptQuality, QualityMeasurement, QualityReference, ReferenceAnswer, TopK
from tokenpeak.spec.quality import MEASUREMENT_LIMIT_S

ANSWER_TOKENS = 24
TOKENS = 60_000
"""That a launch processes for its measurement, about."""
BATCH = 16
"""Requests at a time; the reference answers one by one, so that its floor holds what another batch changes."""
_PASSES = 3
"""A launch sees each prompt so many times: scored, generated, and scored again."""
_LIMIT_S = 300.0
_BYTES_PER_TOKEN = (TOP_K + 1) * 200
_ID_PREFIX = "token_id:"

Result = TypeVar("Result")
Each = TypeVar("Each")


class QualityError(LoadError):
    """An engine that does not answer as the measurement needs."""


@dataclass(frozen=True, kw_only=True)
class _Generated:
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    scores: tuple[TopK, ...] | None


class _Engine:
    """One model of a server, asked within bounds; `processed` counts its tokens."""

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

    async def generate(self, prompt: str | Sequence[int]) -> _Generated:
        """ANSWER_TOKENS tokens, greedily, with the log-probabilities that decoding gave them."""
        choice = await self._choice(prompt, max_tokens=ANSWER_TOKENS, logprobs=TOP_K)
        try:
            prompt_tokens = tuple(map(int, choice["prompt_token_ids"]))
            tokens = tuple(map(int, choice["token_ids"]))
        except (KeyError, TypeError, ValueError) as error:
            words = "The engine does not return token ids (return_token_ids); vLLM does from 0.10.2 on."
            raise QualityError(words) from error
        if not tokens or not prompt_tokens:
            raise QualityError("The engine answered without a token.")
        self.processed += len(prompt_tokens) + len(tokens)
        return _Generated(
            prompt_tokens=prompt_tokens, tokens=tokens, text=str(choice.get("text")), scores=_decoded(choice, tokens)
        )

    async def score(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[TopK, ...]:
        """The log-probabilities of each token of the answer, in prefill."""
        tokens = [*prompt, *answer]
        choice = await self._choice(tokens, max_tokens=1, prompt_logprobs=TOP_K)
        self.processed += len(tokens) + 1
        rows: Any = choice.get("prompt_logprobs")
        try:
            scores = tuple(
                {int(token): float(entry["logprob"]) for token, entry in row.items()} for row in rows[len(prompt) :]
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise QualityError("The engine does not return prompt_logprobs as vLLM does.") from error
        return _checked(scores, answer)

    async def _choice(self, prompt: str | Sequence[int], **asked: object) -> dict[str, Any]:
        body = {
            "model": self._model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **asked,
        }
        answer = await self._ask("/v1/completions", body, limit_bytes=(1 << 20) + len(prompt) * _BYTES_PER_TOKEN)
        try:
            choice = answer.json()["choices"][0]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise QualityError("The engine's completion has no choices.") from error
        if not isinstance(choice, dict):
            raise QualityError("The engine's completion has no choices.")
        return choice

    async def _ask(self, path: str, body: object = None, limit_bytes: int = 1 << 20) -> HttpAnswer:
        answer = await ask(self._client, path, body=body, limit_bytes=limit_bytes, limit_s=_LIMIT_S)
        if answer.status != httpx.codes.OK:
            raise QualityError(f"{path} answered {answer.status}: {answer.text[:300]}")
        return answer


def record_reference(server: Server, model: str, *, tokens: int = TOKENS) -> QualityReference:
    """Have the reference config answer the built-in prompts, and measure its noise floor in a batch.

    Raises LoadError for a server that does not answer as needed.
    """
    return asyncio.run(_with(server, model, lambda engine: _record(engine, model, tokens)))


def measure(server: Server, model: str, reference: QualityReference) -> QualityMeasurement:
    """How a launch agrees with the reference's answers; a measurement that broke off says why, and has no prompts."""
    began, started_at = time.monotonic(), datetime.now(UTC)

    async def bounded(engine: _Engine) -> QualityMeasurement:
        async with asyncio.timeout(MEASUREMENT_LIMIT_S):
            return await _measure(engine, reference.answers)

    try:
        return asyncio.run(_with(server, model, bounded))
    except LoadError as error:
        problem = str(error)[:500]
    except TimeoutError:
        problem = f"It was broken off after {MEASUREMENT_LIMIT_S:g} s."
    return QualityMeasurement(problem=problem, started_at=started_at, duration_s=round(time.monotonic() - began, 3))


def measure_after(job: LoadJob, reference: Path) -> None:
    """Measure the server of a load job after its runs, into the job's folder; what goes wrong is written there too."""
    began = datetime.now(UTC)
    try:
        found = measure(job_server(job), job.model, read_reference(reference))
    except TokenpeakError as error:
        found = QualityMeasurement(problem=str(error)[:500], started_at=began)
    write_atomically(job.output_dir / QUALITY, found.model_dump_json())


async def _with(server: Server, model: str, work: Callable[[_Engine], Awaitable[Result]]) -> Result:
    async with server.client() as client:
        # The whole answer is bounded by `ask`; scoring a long prompt says nothing for a while.
        client.timeout = httpx.Timeout(_LIMIT_S)
        return await work(_Engine(client, model))


async def _record(engine: _Engine, model: str, tokens: int) -> QualityReference:
    context = await engine.context()
    answers = []
    for prompt in await _prompts(engine, context, tokens):
        found = await engine.generate(prompt.text)
        scores = await engine.score(found.prompt_tokens, found.tokens)
        answers.append(
            ReferenceAnswer(
                name=prompt.name,
                kind=prompt.kind,
                text=prompt.text,
                right_answer=prompt.answer,
                prompt_tokens=found.prompt_tokens,
                answer_tokens=found.tokens,
                answer_text=found.text,
                scores=scores,
            )
        )
    return QualityReference(
        recorded_at=datetime.now(UTC),
        model=model,
        engine_version=await engine.version(),
        answers=tuple(answers),
        floor=await _measure(engine, answers),
    )


async def _prompts(engine: _Engine, context: int | None, tokens: int) -> tuple[QualityPrompt, ...]:
    """The built-in prompts, the longest as long as the engine's context and the token budget allow."""
    short = [prompt for prompt in built_in_prompts(0) if prompt.kind != "long_context"]
    sample = "\n".join(prompt.text for prompt in short)
    counted = await engine.count(sample) or len(sample) // 3
    left = tokens / _PASSES - counted - ANSWER_TOKENS * len(short)
    # The long prompts grow evenly up to the longest, which comes to half of their number times the longest.
    longest = min(left / (LONG_PROMPTS / 2 + 0.5), (context or 2048) - 2 * ANSWER_TOKENS)
    long_chars = int(0.9 * longest * len(sample) / counted)
    return built_in_prompts(max(0, long_chars))


async def _measure(engine: _Engine, answers: Sequence[ReferenceAnswer]) -> QualityMeasurement:
    began, started_at, before = time.monotonic(), datetime.now(UTC), engine.processed
    context = await engine.context()
    longest = context - ANSWER_TOKENS - 1 if context is not None else None
    asked = [answer for answer in answers if longest is None or len(answer.prompt_tokens) <= longest]
    scored = await _batched(lambda each: engine.score(each.prompt_tokens, each.answer_tokens), asked)
    made = await _batched(lambda each: engine.generate(each.prompt_tokens), asked)
    own = await _batched(lambda each: engine.score(each.prompt_tokens, each.tokens), made)
    return QualityMeasurement(
        prompts=tuple(map(_compared, asked, scored, made, own)),
        left_out=tuple(answer.name for answer in answers if answer not in asked),
        started_at=started_at,
        tokens=engine.processed - before,
        duration_s=round(time.monotonic() - began, 3),
    )


async def _batched(ask_for: Callable[[Each], Awaitable[Result]], each_of: Iterable[Each]) -> list[Result]:
    """All results, `BATCH` at a time; where one fails, the others have ended before its error is raised."""
    slots = asyncio.Semaphore(BATCH)

    async def slot(each: Each) -> Result:
        async with slots:
            return await ask_for(each)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(slot(each)) for each in each_of]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _compared(
    answer: ReferenceAnswer, scored: tuple[TopK, ...], made: _Generated, own: tuple[TopK, ...]
) -> PromptQuality:
    decode_kl = None
    if made.scores is not None:
        decode_kl = fmean(kl_lower_bound(prefill, decoded) for prefill, decoded in zip(own, made.scores, strict=True))
    return PromptQuality(
        name=answer.name,
        kind=answer.kind,
        tokens=len(answer.answer_tokens),
        kl_nats=fmean(map(kl_lower_bound, answer.scores, scored)),
        top1_agreement=fmean(map(same_top1, answer.scores, scored)),
        log_ratio_nats=log_ratio(answer.answer_tokens, answer.scores, scored),
        decode_kl_nats=decode_kl,
        decode_regret_nats=regret(made.tokens, own),
        same_tokens=same_prefix(answer.answer_tokens, made.tokens),
        answer_text=made.text,
        right=is_right(made.text, answer.right_answer),
    )


def is_right(text: str, right: str) -> bool:
    """Whether a generated text begins with the right answer, and does not go on with more digits or letters."""
    text, right = text.strip(), right.strip()
    return text.startswith(right) and not text[len(right) : len(right) + 1].isalnum()


def _decoded(choice: dict[str, Any], tokens: Sequence[int]) -> tuple[TopK, ...] | None:
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
    return tuple({token: round(value, 5) for token, value in score.items()} for score in scores)
