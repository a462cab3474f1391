"""Quality measurement of a launch over HTTP: texts that it scores, and questions that it answers.

Texts are scored by `prompt_logprobs`, in prefill. Drafting and decode kernels do not work there, so questions are
answered as well, greedily and many at a time, behind a prefix cache where there is one. Scored texts are short: an
engine keeps the whole vocabulary's log-probabilities of each place that it scores in memory.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TypeVar

import httpx

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.target import Server
from tokenpeak.quality.engine import REQUEST_LIMIT_S, Generated, QualityEngine, QualityError
from tokenpeak.quality.prompts import LONG_CONTEXT, LONG_QUESTIONS, VERSION, Question, long_questions, questions, texts
from tokenpeak.quality.prompts import sentence as filler
from tokenpeak.quality.tasks import Task, graded, read_tasks
from tokenpeak.records.quality import GeneratedAnswer, QualityAnswers, QualityMeasurement, ScoredText, TaskResult
from tokenpeak.spec.quality import MEASUREMENT_LIMIT_S, QualityJob

ANSWER_TOKENS = 24
BATCH = 16
"""Requests at a time."""
OTHER_BATCH = 3
"""The same when a reference answers again, for its noise floor: kernels of another batch round otherwise."""
_FILL = 0.9
"""Of the context, by the longest question."""
_CONTEXT = 2048
"""Where the server does not say."""

Result = TypeVar("Result")
Each = TypeVar("Each")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measurement with what was answered, a pass each; without passes where it broke off."""

    measurement: QualityMeasurement
    passes: tuple[QualityAnswers, ...] = ()


def measure(server: Server, model: str, job: QualityJob) -> Measured:
    """What a launch answers; a measurement that broke off says why."""
    began, started_at = time.monotonic(), datetime.now(UTC)
    answered = 0

    async def bounded() -> Measured:
        nonlocal answered
        async with asyncio.timeout(MEASUREMENT_LIMIT_S), server.client() as client:
            # The whole answer is bounded by `ask`; a long prompt says nothing for a while.
            client.timeout = httpx.Timeout(REQUEST_LIMIT_S)
            engine = QualityEngine(client, model)
            try:
                return await _measure(engine, model, job, began, started_at)
            finally:
                answered = engine.processed

    try:
        return asyncio.run(bounded())
    except LoadError as error:
        problem = str(error)[:500]
    except TimeoutError:
        problem = f"It was broken off after {MEASUREMENT_LIMIT_S:g} s."
    duration_s = round(time.monotonic() - began, 3)
    return Measured(
        measurement=QualityMeasurement(
            problem=problem, started_at=started_at, duration_s=duration_s, is_begun=answered > 0, tokens=answered
        ),
    )


async def _measure(engine: QualityEngine, model: str, job: QualityJob, began: float, started_at: datetime) -> Measured:
    context, version, before = await engine.context(), await engine.version(), await engine.counters()
    shortest = min(filter(None, (context, job.context)), default=_CONTEXT)
    asked = await _questions(engine, shortest, job.tokens)
    tasks = read_tasks(job.tasks) if job.tasks is not None else ()
    passes: list[QualityAnswers] = []
    for batch in (BATCH, OTHER_BATCH)[: job.passes]:
        scored = await _batched(_scorer(engine), texts(), batch)
        answers = await _answers(engine, asked, batch)
        # The user's tasks cost what they cost; once is enough, as a floor is of divergences.
        done = await _batched(_grader(engine), tasks, BATCH) if not passes else []
        passes.append(
            QualityAnswers(
                recorded_at=datetime.now(UTC),
                prompt_set=VERSION,
                budget_tokens=job.tokens,
                context=shortest,
                model=model,
                engine_version=version,
                batch=batch,
                texts=tuple(scored),
                answers=tuple(answers),
                tasks=tuple(done),
            )
        )
    after = await engine.counters()
    return Measured(
        measurement=QualityMeasurement(
            started_at=started_at,
            duration_s=round(time.monotonic() - began, 3),
            is_begun=True,
            tokens=engine.processed,
            cached_tokens=_grown(before, after, "prefix_cache_hits"),
            accepted_tokens=_grown(before, after, "accepted_tokens"),
            longest_prompt=max(answer.prompt_tokens for answer in passes[0].answers),
            context=context,
        ),
        passes=tuple(passes),
    )


async def _questions(engine: QualityEngine, context: int, tokens: int) -> tuple[Question, ...]:
    """The short questions, and long ones: one as long as context and budget allow, the others down to half of it."""
    random = Random(0)  # noqa: S311 - a sample, no secret
    sample = " ".join(filler(random) for _ in range(50))
    chars_per_token = len(sample) / (await engine.count(sample) or len(sample) / 4)
    short = questions()
    spent = sum(len(text) for _, text in texts()) + sum(len(question.text) for question in short)
    left = tokens - spent / 3 - ANSWER_TOKENS * (len(short) + LONG_QUESTIONS)
    most = min(_FILL * context, context - 2 * ANSWER_TOKENS)
    longest = max(0.0, min(most, left / 2))
    # The others share what is left; shrinking evenly to a half, they come to three quarters of the longest of them.
    second = max(0.0, min(most, (left - longest) / (0.75 * (LONG_QUESTIONS - 1))))
    lengths = [longest, *(second * (1 - 0.5 * place / LONG_QUESTIONS) for place in range(1, LONG_QUESTIONS))]
    return (*short, *long_questions([int(chars_per_token * length) for length in lengths]))


async def _answers(engine: QualityEngine, asked: Sequence[Question], batch: int) -> list[GeneratedAnswer]:
    async def answer(question: Question) -> GeneratedAnswer:
        return _graded(question, await engine.generate(question.text, ANSWER_TOKENS))

    # The longest first and alone: the others begin alike, and find it in the prefix cache.
    longest = max(asked, key=lambda question: len(question.text))
    first = await answer(longest)
    others = await _batched(answer, [question for question in asked if question is not longest], batch)
    return [first, *others]


def _graded(question: Question, made: Generated) -> GeneratedAnswer:
    if made.scores is None:
        raise QualityError("The engine gave no log-probabilities with the tokens that it generated.")
    return GeneratedAnswer(
        name=question.name if question.kind != LONG_CONTEXT else f"{question.name}-{made.prompt_tokens}",
        kind=question.kind,
        prompt_tokens=made.prompt_tokens,
        tokens=made.tokens,
        scores=made.scores,
        text=made.text,
        right=is_right(made.text, question.answer),
    )


def is_right(text: str, right: str) -> bool:
    """Whether a generated text begins with the right answer, and does not go on with more digits or letters."""
    text, right = text.strip(), right.strip()
    return text.startswith(right) and not text[len(right) : len(right) + 1].isalnum()


def _scorer(engine: QualityEngine) -> Callable[[tuple[str, str]], Awaitable[ScoredText]]:
    async def scored(each: tuple[str, str]) -> ScoredText:
        name, text = each
        tokens, scores = await engine.score(text)
        return ScoredText(name=name, tokens=tokens, scores=scores)

    return scored


def _grader(engine: QualityEngine) -> Callable[[Task], Awaitable[TaskResult]]:
    async def grade(task: Task) -> TaskResult:
        return await graded(engine, task)

    return grade


async def _batched(ask_for: Callable[[Each], Awaitable[Result]], each_of: Iterable[Each], batch: int) -> list[Result]:
    """All results, `batch` at a time; where one fails, the others have ended before its error is raised."""
    slots = asyncio.Semaphore(batch)

    async def slot(each: Each) -> Result:
        async with slots:
            return await ask_for(each)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(slot(each)) for each in each_of]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _grown(before: Mapping[str, float], after: Mapping[str, float], name: str) -> int | None:
    return int(after[name] - before[name]) if name in before and name in after else None
