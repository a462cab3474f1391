"""Conversations of recorded chats: their turns, asked one after the other. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count as count_from
from typing import Any

import numpy as np

from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.assignment import Conversation, Turn
from tokenpeak.loadgen.datasets import DatasetSample, estimated_tokens, salted, text_of
from tokenpeak.spec.workload import DatasetWorkload

SPARE = 64
"""The fewest conversations; they have twice as many requests as a run: a process with short chats repeats none."""
ASKING = ("user", "tool")


def conversations_of(
    samples: Sequence[DatasetSample], workload: DatasetWorkload, count: int, random: np.random.Generator, mark: str
) -> tuple[Conversation, ...]:
    """Conversations of more than `count` requests, in random order.

    A file with fewer is repeated. All chats of a round open with one salt, which begins with `mark`: what they share
    with one another can be cached, and nothing of an earlier round.
    """
    if not all(sample.messages for sample in samples):
        raise WorkloadError(f"Workload {workload.name!r} has prompts that are no chats: leave turn_by_turn out.")
    made: list[Conversation] = []
    requests = 0
    for number, index in _rounds(len(samples), random):
        salt = f"{mark}{number} " if mark and number else mark
        made.append(Conversation(starter="", turns=_turns(samples[index], workload.output_tokens, salt)))
        requests += len(made[-1].turns)
        if requests >= 2 * count and len(made) >= SPARE:
            break
    return tuple(made)


def _rounds(number: int, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Without end: the number of a round, and an index of `number`, each once a round."""
    for round_ in count_from(0):
        for index in random.permutation(number):
            yield round_, int(index)


def _turns(sample: DatasetSample, output_tokens: int | None, salt: str) -> tuple[Turn, ...]:
    """The turns of a chat; answers are as long as the recorded ones, or `output_tokens`."""
    turns: list[Turn] = []
    said: list[dict[str, Any]] = []
    for message in salted(sample.messages, salt):
        # An answer to nothing, such as a greeting, is a part of what the next turn sends.
        if message["role"] == "assistant" and any(each["role"] in ASKING for each in said):
            length = output_tokens or _tokens(message)
            answer = message if message.get("tool_calls") else None
            turns.append(Turn(messages=tuple(said), output_tokens=length, answer=answer))
            said = []
        else:
            said.append(message)
    # Of a chat whose last answer has no length there is no sample.
    turns.append(Turn(messages=tuple(said), output_tokens=sample.output_tokens or 1))
    return tuple(turns)


def _tokens(answer: Mapping[str, Any]) -> int:
    calls = answer.get("tool_calls")
    return estimated_tokens(text_of(answer) + (json.dumps(calls) if calls else ""))


def user_turns(sample: DatasetSample) -> int:
    """How many requests a chat is, asked turn by turn."""
    return len(_turns(sample, 1, "")) if sample.messages else 1


def first_turns(due_s: Sequence[float], conversations: Sequence[Conversation]) -> tuple[float, ...]:
    """When conversations begin, so that their requests come at the timetable's rate.

    Every further turn follows its conversation's own pace.
    """
    return tuple(due_s[place] for place in _places(len(due_s), conversations))


def _places(number: int, conversations: Sequence[Conversation]) -> Iterator[int]:
    place = begun = 0
    while place < number:
        yield place
        place += len(conversations[begun % len(conversations)].turns)
        begun += 1
