"""Measurement of a launch: texts scored, questions and the user's tasks answered, as the last part of a load job."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import isclose
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar

import httpx
from pydantic import Field, PositiveInt, ValidationError, model_validator

from tokenpeak import bounded
from tokenpeak.errors import LoadError, TokenpeakError
from tokenpeak.files import write_atomically
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.job import ANSWERS, QUALITY, LoadJob, job_server
from tokenpeak.quality.answers import written
from tokenpeak.quality.engine import REQUEST_LIMIT_S, Generated, QualityEngine, QualityError
from tokenpeak.quality.prompts import LONG_CONTEXT, LONG_QUESTIONS, VERSION, Question, long_questions, questions, texts
from tokenpeak.quality.prompts import sentence as filler
from tokenpeak.records.quality import (
    GeneratedAnswer,
    QualityAnswers,
    QualityMeasurement,
    QualityPasses,
    ScoredText,
    TaskResult,
)
from tokenpeak.spec import Declaration
from tokenpeak.spec.quality import MEASUREMENT_LIMIT_S, QualityJob

MOST_TASKS = 10_000
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Task(Declaration):
    """One labelled task."""

    name: str = ""
    prompt: str | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    answer: str
    match: Literal["exact", "numeric", "regex", "choice"] = "exact"
    choices: tuple[str, ...] = ()
    max_tokens: PositiveInt = Field(default=256, le=8192)

    @model_validator(mode="before")
    @classmethod
    def _inferred(cls, raw: Any) -> Any:
        """A number as the answer, and choices, say how to match."""
        if not isinstance(raw, dict):
            return raw
        answer = raw.get("answer")
        if isinstance(answer, int | float) and not isinstance(answer, bool):
            raw = {"match": "numeric", **raw, "answer": str(answer)}
        return {"match": "choice", **raw} if raw.get("choices") else raw

    @model_validator(mode="after")
    def _consistent(self) -> "Task":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give prompt or messages")
        if (self.match == "choice") != bool(self.choices):
            raise ValueError("choices go with match: choice")
        if self.choices and (self.messages is not None or self.answer not in self.choices):
            raise ValueError("choices need a prompt, and the answer among them")
        if self.match == "numeric" and not _NUMBER.fullmatch(self.answer.strip()):
            raise ValueError(f"answer is {self.answer!r}, no number")
        if self.match == "regex":
            try:
                re.compile(self.answer)
            except re.error as error:
                raise ValueError(f"answer is no regular expression: {error}") from error
        return self


def read_tasks(path: Path) -> tuple[Task, ...]:
    """The tasks in a file; raises LoadError that names the line which is none."""
    lines = bounded.read_bytes(path, error=LoadError).decode("utf-8", "replace").splitlines()
    tasks: list[Task] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task = Task.model_validate(bounded.parse_json(line.encode(), f"{path}, line {number}", error=LoadError))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise LoadError(f"{path}, line {number}: {where or 'task'}: {first['msg']}") from error
        tasks.append(task if task.name else task.model_copy(update={"name": f"line {number}"}))
    if not 0 < len(tasks) <= MOST_TASKS:
        raise LoadError(f"{path} has {len(tasks):,} tasks; give 1 to {MOST_TASKS:,}.")
    if len({task.name for task in tasks}) < len(tasks):
        raise LoadError(f"{path}: two tasks share a name.")
    return tuple(tasks)


async def graded(engine: QualityEngine, task: Task) -> TaskResult:
    """Whether an engine does the task right."""
    if task.match == "choice":
        chosen = await _likeliest(engine, str(task.prompt), task.choices)
        return TaskResult(name=task.name, right=chosen == task.answer, answer=chosen)
    asked = {"messages": list(task.messages)} if task.messages is not None else {"prompt": task.prompt}
    text = await engine.answer(asked, task.max_tokens)
    return TaskResult(name=task.name, right=matches(task, text), answer=text)


def matches(task: Task, text: str) -> bool:
    """Whether a generated text is the right answer."""
    if task.match == "regex":
        return re.search(task.answer, text) is not None
    if task.match == "numeric":
        numbers = _NUMBER.findall(text)
        return bool(numbers) and isclose(_value(numbers[-1]), _value(task.answer), rel_tol=1e-6)
    expected, given = task.answer.strip(), text.strip()
    return given == expected or given.partition("\n")[0].strip() == expected


def _value(text: str) -> float:
    return float(text.strip().replace(",", ""))


async def _likeliest(engine: QualityEngine, prompt: str, choices: Sequence[str]) -> str:
    """The choice of the largest sum of its tokens' log-probabilities after the prompt."""
    scored = [await engine.score(prompt + choice) for choice in choices]
    common = 0
    while all(common + 1 < len(tokens) and tokens[common] == scored[0][0][common] for tokens, _ in scored):
        common += 1
    if common == 0:
        raise QualityError("The choices of a task do not begin with the same prompt.")
    sums = [
        sum(score[token] for token, score in zip(tokens[common:], scores[common - 1 :], strict=True))
        for tokens, scores in scored
    ]
    return choices[max(range(len(choices)), key=sums.__getitem__)]


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
    """The measurement of a launch; one that broke off says why."""
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

    async def scored_text(named: tuple[str, str]) -> ScoredText:
        tokens, scores = await engine.score(named[1])
        return ScoredText(name=named[0], tokens=tokens, scores=scores)

    for batch in (BATCH, OTHER_BATCH)[: job.passes]:
        scored = await _batched(scored_text, texts(), batch)
        answers = await _answers(engine, asked, batch)
        # The user's tasks cost what they cost; once is enough, as a floor is of divergences.
        done = await _batched(partial(graded, engine), tasks, BATCH) if not passes else []
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


def measure_after(job: LoadJob, asked: QualityJob) -> None:
    """Measure the server of a load job after its runs, into the job's folder; what goes wrong is written there too."""
    began = datetime.now(UTC)
    try:
        measured = measure(job_server(job), job.model, asked)
    except TokenpeakError as error:
        measured = Measured(measurement=QualityMeasurement(problem=str(error)[:500], started_at=began))
    if measured.passes:
        file = job.output_dir / ANSWERS
        write_atomically(file, written(QualityPasses(passes=measured.passes), file))
    write_atomically(job.output_dir / QUALITY, measured.measurement.model_dump_json())
