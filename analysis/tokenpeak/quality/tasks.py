"""Labelled tasks of the user's: a JSON line each, graded as right or wrong.

A line has `prompt` (a text to go on from) or `messages` (a chat), the right `answer`, and `match`: `exact` (the answer
or its first line), `numeric` (its last number), `regex` (found anywhere in it), or with `choices` the one that is
likeliest after the prompt, by log-probability.
"""

import re
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from tokenpeak import bounded
from tokenpeak.errors import LoadError
from tokenpeak.quality.engine import QualityEngine, QualityError
from tokenpeak.records.quality import TaskResult
from tokenpeak.spec.workload import Declaration

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
    found: list[Task] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task = Task.model_validate(bounded.parse_json(line.encode(), f"{path}, line {number}", error=LoadError))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise LoadError(f"{path}, line {number}: {where or 'task'}: {first['msg']}") from error
        found.append(task if task.name else task.model_copy(update={"name": f"line {number}"}))
    if not 0 < len(found) <= MOST_TASKS:
        raise LoadError(f"{path} has {len(found):,} tasks; give 1 to {MOST_TASKS:,}.")
    if len({task.name for task in found}) < len(found):
        raise LoadError(f"{path}: two tasks share a name.")
    return tuple(found)


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
