"""Recorded chats that are asked turn by turn, against a server that keeps what it was asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.broken_server import serving
from loadgen.test_generator import Listener, measure, requests
from tokenpeak.errors import LoadError
from tokenpeak.loadgen.prompts import Prompts, make
from tokenpeak.loadgen.vocabulary import UNKNOWN
from tokenpeak.spec.workload import DatasetWorkload

SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]}
RESULT = {"role": "tool", "content": "42", "tool_call_id": "1"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(tokens: int) -> dict[str, str]:
    return {"role": "assistant", "content": "a" * 4 * tokens}


def workload(folder: Path, *chats: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    given = {"kind": "dataset", "name": "x", "path": str(path), "endpoint": "chat", "salt": False}
    return {**given, "turn_by_turn": True, **keys}


def made(folder: Path, *chats: list[dict[str, Any]], number: int = 1, is_salted: bool = False) -> Prompts:
    declared = DatasetWorkload.model_validate(workload(folder, *chats, salt=is_salted))
    return make(declared, "m", UNKNOWN, number=number, seed=0, salt="S")


def test_each_turn_is_sent_after_the_answer_to_the_one_before(tmp_path: Path) -> None:
    """The history holds the engine's own answers; lengths are those of the recorded ones."""
    listener = Listener(pause_s=0.02)
    chat = [SYSTEM, user("One?"), answer(7), user("Two?"), answer(8), user("Three?"), answer(9), user("Open?")]
    with serving(listener) as url:
        record = measure(url, tmp_path, {"concurrency": 1, "requests": 3}, workload(tmp_path, chat))

    own = {"role": "assistant", "content": " tok tok tok"}
    asked = [SYSTEM, user("One?"), own, user("Two?"), own, user("Three?")]
    assert [asked[:2], asked[:4], asked] == [body["messages"] for body in listener.bodies()]
    assert [7, 8, 9] == [body["max_tokens"] for body in listener.bodies()]
    assert [0, 1, 2] == [turn.turn for turn in record.turns]
    rows = requests(tmp_path)
    assert all(rows["sent_s"][1:] >= rows["last_token_s"][:-1])


def test_an_answer_that_called_tools_stays(tmp_path: Path) -> None:
    """A tool's result follows the call that it answers, in a turn of its own."""
    first, second = made(tmp_path, [user("Six times seven?"), CALL, RESULT, answer(5)]).conversations[0].turns

    assert (user("Six times seven?"),) == first.messages
    assert CALL == first.answer
    assert ((RESULT,), 5) == (second.messages, second.output_tokens)


def test_a_greeting_is_no_answer(tmp_path: Path) -> None:
    """An assistant's words before any of the user's are a part of the first turn."""
    greeting = {"role": "assistant", "content": "Hello!"}
    (turn,) = made(tmp_path, [SYSTEM, greeting, user("Hi"), answer(2)]).conversations[0].turns

    assert (SYSTEM, greeting, user("Hi")) == turn.messages


def test_a_round_of_chats_shares_its_salt(tmp_path: Path) -> None:
    """A repeated chat can hit nothing of its earlier round; chats of a round begin alike."""
    chats = [[SYSTEM, user(f"{number}?"), answer(2)] for number in range(10)]
    conversations = made(tmp_path, *chats, number=100, is_salted=True).conversations
    begun = [each.turns[0].messages[0]["content"] for each in conversations]

    assert ["S Be brief."] * 10 + ["S 1 Be brief."] * 10 == begun[:20]
    assert len(set(begun)) == len(begun) / 10 >= 20


def test_share_gpt_turn_by_turn(tmp_path: Path) -> None:
    """ShareGPT's conversations are chats, too."""
    path = tmp_path / "share.json"
    words = [("human", "One?"), ("gpt", "a" * 8), ("human", "Two?"), ("gpt", "b" * 12)]
    path.write_text(json.dumps([{"conversations": [{"from": by, "value": text} for by, text in words]}]))
    declared = DatasetWorkload(name="x", path=str(path), endpoint="chat", salt=False, turn_by_turn=True)
    turns = make(declared, "m", UNKNOWN, number=1, seed=0, salt="s").conversations[0].turns

    assert [((user("One?"),), 2), ((user("Two?"),), 3)] == [(each.messages, each.output_tokens) for each in turns]


def test_chats_of_unequal_length_come_at_the_rate(tmp_path: Path) -> None:
    """Chats of one and of three turns begin as far apart as they have turns, and every request is sent."""
    chats = [[user("a"), answer(1)], [user("b"), answer(1), user("c"), answer(1), user("d"), answer(1)]]
    level = {"rate_per_s": 50, "requests": 40, "arrivals": "constant"}
    listener = Listener()
    with serving(listener) as url:
        record = measure(url, tmp_path, level, workload(tmp_path, *chats))
    firsts = requests(tmp_path).filter(turn=0).sort("due_s")
    gaps = sorted({round(gap / 0.02) for gap in firsts["due_s"].diff().drop_nulls()})

    assert 40 == record.summary.requests_ok
    assert [1, 3] == gaps


def test_think_time_and_two_processes(tmp_path: Path) -> None:
    """The user thinks before each further turn, and processes share the chats without asking one twice."""
    chats = [[user(f"{number}"), answer(1), user("more"), answer(1)] for number in range(20)]
    listener = Listener()
    with serving(listener) as url:
        measure(
            *(url, tmp_path, {"concurrency": 4, "requests": 20}),
            workload(tmp_path, *chats, think_time_s=0.1),
            processes=2,
        )
    rows = requests(tmp_path)
    asked = [body["messages"][0]["content"] for body in listener.bodies() if len(body["messages"]) == 1]

    assert 20 == rows.height
    assert len(asked) == len(set(asked))
    assert rows.filter(turn=1)["sent_s"].min() >= 0.1


@pytest.mark.parametrize(
    ("rows", "keys", "words"),
    [
        ([{"prompt": "Why?"}], {"output_tokens": 3}, "has prompts that are no chats: leave turn_by_turn out"),
        ([], {"endpoint": "completions"}, "turn_by_turn needs endpoint: chat"),
        ([], {"turn_by_turn": False, "think_time_s": 1}, "think_time_s needs turn_by_turn: true"),
    ],
)
def test_what_has_no_turns(rows: list[object], keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Prompts have no turns, nor has a completion."""
    given = workload(tmp_path, **keys)
    Path(given["path"]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises((LoadError, ValueError), match=words):
        make(DatasetWorkload.model_validate(given), "m", UNKNOWN, number=1, seed=0, salt="s")
