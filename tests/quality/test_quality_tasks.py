"""Labelled tasks: how answers match, what lines are refused, and tasks on a simulated engine."""

import asyncio
import json
from pathlib import Path

import pytest
from scipy.stats import binomtest
from tests.sim.running_engine import MODEL, RunningEngine

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.http.server import Server
from tokenpeak.quality.engine import QualityEngine
from tokenpeak.quality.measure import Task, graded, matches, read_tasks
from tokenpeak.quality.verdict import mcnemar, paired


@pytest.mark.parametrize(
    ("task", "text", "right"),
    [
        ({"answer": "Oslo"}, " Oslo\nIt is in Norway.", True),
        ({"answer": "Oslo"}, "Oslo is it", False),
        ({"answer": 1200}, "So 3 times 400 is 1,200.", True),
        ({"answer": 1200}, "It is 1201", False),
        ({"answer": "-0.5", "match": "numeric"}, "x = -0.50", True),
        ({"answer": r"\bfour\b", "match": "regex"}, "It is four.", True),
        ({"answer": r"\bfour\b", "match": "regex"}, "fourteen", False),
    ],
)
def test_matching(task: dict[str, object], text: str, right: bool) -> None:
    """An exact answer is the text or its first line, a number its last number, an expression found anywhere."""
    assert right == matches(Task.model_validate({"prompt": "q", **task}), text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "no whole JSON"),
        ('{"prompt": ' + "[" * 5000, "nested deeper"),
        ('{"prompt": "q"}', "answer"),
        ('{"answer": "a"}', "prompt or messages"),
        ('{"prompt": "q", "answer": "(", "match": "regex"}', "regular expression"),
        ('{"prompt": "q", "answer": "c", "choices": ["a", "b"]}', "among them"),
        ('{"prompt": "q", "answer": "five", "match": "numeric"}', "no number"),
        ('{"prompt": "q", "answer": "a", "choise": ["a"]}', "choise"),
    ],
)
def test_mistakes_are_named_by_line(tmp_path: Path, line: str, words: str) -> None:
    """A line that is no task is refused with its number and what is wrong."""
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"prompt": "a", "answer": "b"}\n' + line + "\n")

    with pytest.raises(LoadError, match=rf"line 2.*{words}"):
        read_tasks(file)


def test_tasks_are_graded_by_an_engine(sound: RunningEngine, tmp_path: Path) -> None:
    """Of choices the likeliest is taken, by log-probability; a text is generated for the others, in chat too."""
    prompt = "one two three"
    lines = [
        {"prompt": prompt, "choices": [" four", " five", " six"], "answer": " four"},
        {"prompt": prompt, "answer": ".", "match": "regex", "max_tokens": 5},
        {"messages": [{"role": "user", "content": "Hello"}], "answer": ".", "match": "regex", "max_tokens": 5},
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    chosen, generated, chatted = asyncio.run(_graded(sound, file))

    assert chosen.answer in (" four", " five", " six")
    assert generated.right
    assert chatted.right
    assert ["line 1", "line 2", "line 3"] == [chosen.name, generated.name, chatted.name]


async def _graded(engine: RunningEngine, file: Path):  # type: ignore[no-untyped-def]
    async with Server(engine.url).client() as client:
        return [await graded(QualityEngine(client, MODEL), task) for task in read_tasks(file)]


@pytest.mark.parametrize(("worse", "better"), [(0, 0), (3, 0), (7, 0), (7, 2), (2, 7), (20, 20)])
def test_paired_test_is_the_binomial_test(worse: int, better: int) -> None:
    """McNemar's exact test is SciPy's one-sided binomial test."""
    expected = binomtest(worse, worse + better, alternative="greater").pvalue if worse + better else 1.0

    assert expected == pytest.approx(mcnemar(worse, better))


@pytest.mark.parametrize(
    ("samples", "worse", "better", "status"),
    [(2000, 5, 5, "pass"), (2000, 40, 5, "fail"), (50, 2, 1, "unknown"), (2000, 0, 0, "pass"), (0, 0, 0, "unknown")],
)
def test_paired_samples(samples: int, worse: int, better: int, status: str) -> None:
    """Many samples that hardly change pass, those that become wrong fail, and few show nothing."""
    reference = {("t", str(n)): n >= better for n in range(samples)}
    candidate = {("t", str(n)): n < samples - worse for n in range(samples)}

    assert status == paired(reference, candidate, margin=0.01).status
