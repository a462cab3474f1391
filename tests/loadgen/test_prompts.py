import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from tokenpeak.errors import LoadError, WorkloadError
from tokenpeak.loadgen.assignment import RequestTemplate
from tokenpeak.loadgen.prompts import Prompts, make
from tokenpeak.loadgen.vocabulary import UNKNOWN
from tokenpeak.spec.schema import read_workload
from tokenpeak.spec.workload import (
    ConversationWorkload,
    DatasetWorkload,
    FixedWorkload,
    SyntheticWorkload,
    TraceWorkload,
    Workload,
)


def prompts(workload: Workload, number: int | None = 4, salt: str = "s1", seed: int = 0) -> Prompts:
    return make(workload, "m", UNKNOWN, number=number, seed=seed, salt=salt)


def body(ask: RequestTemplate) -> dict[str, Any]:
    return dict(json.loads(ask.prefix + ask.salt + ask.suffix))


def bodies(workload: Workload, **keys: Any) -> list[dict[str, Any]]:
    return [body(ask) for ask in prompts(workload, **keys).templates]


def test_synthetic_lengths_are_exact() -> None:
    """A synthetic prompt is as many token ids as were asked for, and asks for as many tokens."""
    found = bodies(SyntheticWorkload(name="x", input_tokens=100, output_tokens=7))

    assert {(100, 7, 7, True)} == {
        (len(request["prompt"]), request["max_tokens"], request["min_tokens"], request["ignore_eos"])
        for request in found
    }


def test_no_two_synthetic_prompts_share_a_beginning() -> None:
    """Prompts of a run, and of another run of the same seed, differ from their first block on."""
    workload = SyntheticWorkload(name="x", input_tokens=32, output_tokens=1)
    beginnings = [tuple(request["prompt"][:6]) for salt in ("a", "b") for request in bodies(workload, salt=salt)]

    assert len(beginnings) == len(set(beginnings))


@pytest.mark.parametrize(
    ("distribution", "mean"),
    [
        ({"distribution": "uniform", "low": 50, "high": 150}, 100),
        ({"distribution": "normal", "mean": 100, "std": 10}, 100),
        ({"distribution": "lognormal", "mean": 100, "std": 50}, 100),
        ({"distribution": "table", "table": [[50, 1], [150, 1]]}, 100),
    ],
)
def test_length_distributions(distribution: dict[str, Any], mean: float) -> None:
    """Each distribution has the mean that it was given."""
    workload = SyntheticWorkload.model_validate(
        {"name": "x", "input_tokens": distribution, "output_tokens": 1, "kind": "synthetic"}
    )
    found = [len(request["prompt"]) for request in bodies(workload, number=1500)]

    assert mean == pytest.approx(sum(found) / len(found), rel=0.05)


def test_fixed_prompt_is_salted_per_run() -> None:
    """All requests of a run share the prompt and its salt; another run has another salt."""
    workload = FixedWorkload(name="x", prompt='Say "hi"', output_tokens=2)

    assert ['s1 Say "hi"', 's2 Say "hi"'] == [
        request["prompt"] for salt in ("s1", "s2") for request in bodies(workload, salt=salt)
    ]


def test_sharegpt(tmp_path: Path) -> None:
    """The first human turn is the prompt, and its answer gives the length to ask for."""
    turns = [{"from": "human", "value": "Question?"}, {"from": "gpt", "value": "a" * 40}]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([{"conversations": turns}, {"conversations": turns[:1]}]))

    found = bodies(DatasetWorkload(name="x", path=str(path), salt=False))
    assert [("Question?", 10)] == [(request["prompt"], request["max_tokens"]) for request in found]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_dataset_columns(kind: str, tmp_path: Path) -> None:
    """Columns are mapped, and prompts outside the length limits are left out."""
    frame = pl.DataFrame({"q": ["hi", "short one", "x" * 4000], "n": [4, 5, 6]})
    path = tmp_path / f"data.{kind}"
    frame.write_ndjson(path) if kind == "jsonl" else frame.write_parquet(path)
    limits = {"min_input_tokens": 2, "max_input_tokens": 100}
    workload = DatasetWorkload(name="x", path=str(path), prompt_column="q", output_column="n", salt=False, **limits)

    assert [("short one", 5)] == [(request["prompt"], request["max_tokens"]) for request in bodies(workload)]


USER, ASSISTANT = {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "a" * 40}


def chats(path: Path, *rows: object, **more: Any) -> list[dict[str, Any]]:
    """The requests that are made of a file with these rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) if path.suffix == ".jsonl" else json.dumps(rows))
    return bodies(DatasetWorkload(name="x", path=str(path), **{"endpoint": "chat", "salt": False, **more}))


@pytest.mark.parametrize("name", ["log.jsonl", "log.json"])
def test_chat_log(name: str, tmp_path: Path) -> None:
    """All before a chat's last answer is asked, in its words and roles, for an answer of that length."""
    log = {"messages": [{"role": "system", "content": "Be brief."}, USER, ASSISTANT, USER, ASSISTANT], "cost": 2}
    [found] = chats(tmp_path / name, log)

    assert [{"role": "system", "content": "Be brief."}, USER, ASSISTANT, USER] == found["messages"]
    assert 10 == found["max_tokens"]


def test_chat_of_parts_is_salted_in_its_first_text(tmp_path: Path) -> None:
    """The run's salt stands before the first text; pictures and tool calls stay as they are."""
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    asked = {"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]}
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"messages": [asked, ASSISTANT]}))
    [found] = bodies(DatasetWorkload(name="x", path=str(path), endpoint="chat"), salt="s1")

    assert [picture, {"type": "text", "text": "s1 What is it?"}] == found["messages"][0]["content"]


@pytest.mark.parametrize(
    ("row", "more", "words"),
    [
        ({"messages": [USER, ASSISTANT]}, {"endpoint": "completions"}, "holds chats: give workload 'x' endpoint: chat"),
        ({"messages": [USER]}, {}, "None of its chats has an answer: give output_tokens"),
        ({"messages": ["Why?"]}, {}, "row 1: 'messages' is no list of messages with roles and texts"),
        ({"messages": [ASSISTANT]}, {}, "is no list of messages"),
        ({"messages": 3}, {}, "row 1: 'messages' is no list of messages with roles and texts"),
        ({"messages": "Why?"}, {}, "row 1: 'messages' is no list of messages with roles and texts"),
        ({"massages": [USER]}, {}, "has no column 'prompt'"),
    ],
)
def test_chat_log_that_cannot_be_asked(row: object, more: dict[str, Any], words: str, tmp_path: Path) -> None:
    """A log that is no chat, has no answers, or is meant for another endpoint is an error that says what to write."""
    with pytest.raises(LoadError, match=words):
        chats(tmp_path / "log.jsonl", row, **more)


def test_conversations_share_starters() -> None:
    """Conversations take the starters in turn, and each has its turns."""
    workload = ConversationWorkload(
        name="x", starters=2, starter_tokens=20, turns=3, turn_input_tokens=5, output_tokens=4
    )
    conversations = prompts(workload, number=12).conversations

    assert 4 == len(conversations)
    assert 2 == len({each.starter for each in conversations})
    assert {3} == {len(each.turns) for each in conversations}


def jsonl(path: Path, *prompts: str) -> str:
    """A file of prompts."""
    path.write_text("".join(json.dumps({"prompt": text, "answer": "a"}) + "\n" for text in prompts))
    return str(path)


def test_datasets_are_merged_and_matched(tmp_path: Path) -> None:
    """Prompts of several files, those alone in which the expression is found."""
    first = jsonl(tmp_path / "a.jsonl", "Spring in Java", "Rust traits", "javascript tips")
    second = jsonl(tmp_path / "b.jsonl", "React hooks", "COBOL")
    workload = DatasetWorkload(name="x", paths=(first, second), match="(?i)java|react", output_tokens=2, salt=False)

    assert {"Spring in Java", "javascript tips", "React hooks"} == {each["prompt"] for each in bodies(workload)}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "path, paths or hub"),
        ({"path": "a.jsonl", "match": "("}, "no regular expression"),
    ],
)
def test_dataset_has_a_source(keys: dict[str, Any], message: str) -> None:
    """A dataset without one, or with an expression that is none, is refused as it is read."""
    with pytest.raises(ValidationError, match=message):
        DatasetWorkload.model_validate({"name": "x"} | keys)


def test_nothing_matches(tmp_path: Path) -> None:
    """An expression that no prompt has is named."""
    path = jsonl(tmp_path / "a.jsonl", "Rust traits")

    with pytest.raises(WorkloadError, match=r"no prompt in which 'COBOL' is found"):
        prompts(DatasetWorkload(name="x", path=path, match="COBOL", output_tokens=2))


def test_hub_needs_its_library() -> None:
    """Without the datasets library, which is an extra, the sentence says how to come by it."""
    if find_spec("datasets") is not None:
        pytest.skip("the library is installed")
    with pytest.raises(WorkloadError, match=r"pip install 'tokenpeak\[hub\]'"):
        prompts(DatasetWorkload(name="x", hub="acme/chats", output_tokens=2))


def test_starters_of_a_file(tmp_path: Path) -> None:
    """Chats begin with the file's texts in turn, behind the run's salt; a row without a text is named."""
    path = tmp_path / "starters.jsonl"
    path.write_text('{"text": "Rome was"}\n{"text": "The Nile is"}\n')
    workload = ConversationWorkload(name="x", starters=str(path), turns=1, turn_input_tokens=5, output_tokens=4)
    begun = [each.starter for each in prompts(workload, number=3).conversations]
    path.write_text('{"text": "Rome was"}\n{"words": 3}\n')

    assert ["s1 Rome was", "s1 The Nile is", "s1 Rome was"] == begun
    with pytest.raises(WorkloadError, match="entry 2, needs a text"):
        prompts(workload)


@pytest.mark.parametrize("keys", [{"starters": 3}, {"starters": "a.jsonl", "starter_tokens": 5}])
def test_starters_are_made_or_read(keys: dict[str, Any]) -> None:
    """A number needs a length, and a file has its own."""
    with pytest.raises(ValidationError, match="file of starters"):
        ConversationWorkload.model_validate(
            {"name": "x", "turns": 1, "turn_input_tokens": 5, "output_tokens": 4} | keys
        )


def test_every_turn_says_the_text_that_is_given(tmp_path: Path) -> None:
    """A fixed follow-up in each turn of each chat; with lengths beside it, or neither, it is refused."""
    keys = {"name": "x", "starters": 2, "starter_tokens": 20, "turns": 3, "output_tokens": 4}
    workload = ConversationWorkload.model_validate(keys | {"turn_text": "And then?"})
    turns = [turn for each in prompts(workload, number=6).conversations for turn in each.turns]

    assert [("And then?", 4)] * 6 == [(turn.messages[0]["content"], turn.output_tokens) for turn in turns]
    for others in ({}, {"turn_text": "And then?", "turn_input_tokens": 5}, {"turn_text": ""}):
        with pytest.raises(ValidationError, match="turn_text"):
            ConversationWorkload.model_validate(keys | others)


def test_trace_prompts(tmp_path: Path) -> None:
    """Each entry of a trace is a request of its lengths, in order of time."""
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp_s": 12, "input_tokens": 9, "output_tokens": 2}\n'
        '{"timestamp_s": 10, "input_tokens": 30, "output_tokens": 1}\n'
    )

    found = bodies(TraceWorkload(name="x", path=str(path)))
    assert [(30, 1), (9, 2)] == [(len(request["prompt"]), request["max_tokens"]) for request in found]


def test_workload_file(tmp_path: Path) -> None:
    """A workload file takes its name from the file, and an unknown key is named with the nearest."""
    path = tmp_path / "short.yml"
    path.write_text("{kind: fixed, prompt: Hi, output_tokens: 3}")
    assert "short" == read_workload(path).name
    path.write_text("{kind: fixed, prompt: Hi, output_token: 3, output_tokens: 3}")

    with pytest.raises(LoadError, match=r"output_token: unknown key. Did you mean output_tokens"):
        read_workload(path)


def test_workload_file_with_lengths(tmp_path: Path) -> None:
    """A wrong key of a distribution of lengths is named with the nearest, a missing one by the distribution's rule."""
    path = tmp_path / "chat.yml"
    lengths = "{distribution: lognormal, mean: 600, std: 300, hihg: 2000}"
    path.write_text(f"{{kind: synthetic, input_tokens: {lengths}, output_tokens: 3}}")
    with pytest.raises(LoadError, match=r"chat.yml: input_tokens.hihg: unknown key. Did you mean high\?"):
        read_workload(path)
    path.write_text("{kind: synthetic, input_tokens: {distribution: normal}, output_tokens: 3}")

    with pytest.raises(LoadError, match=r"input_tokens: distribution 'normal' needs mean and std"):
        read_workload(path)


def served_share(prompts: list[list[int]], block: int) -> float:
    """Share of prompt tokens that an endless cache of whole blocks serves; a prompt's last token never."""
    seen: set[tuple[int, ...]] = set()
    served = 0
    for prompt in prompts:
        blocks = [tuple(prompt[: end + block]) for end in range(0, len(prompt) - block + 1, block)]
        hits = next((at for at, each in enumerate(blocks) if each not in seen), len(blocks))
        served += min(hits, (len(prompt) - 1) // block) * block
        seen.update(blocks)
    return served / sum(map(len, prompts))


@pytest.mark.parametrize("block", [16, 128])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("length", [1000, {"distribution": "lognormal", "mean": 1000, "std": 600, "low": 300}])
def test_prefix_hit_rate_is_produced(length: int | dict[str, Any], rate: float, block: int) -> None:
    """A cache of whole blocks serves the share that was asked for, within 2 points, whatever the lengths."""
    workload = SyntheticWorkload.model_validate(
        {"name": "x", "input_tokens": length, "output_tokens": 1, "prefix_hit_rate": rate}
    )
    vocabulary = replace(UNKNOWN, block_tokens=block)
    made = make(workload, "m", vocabulary, number=200, seed=0, salt="s").templates

    assert rate == pytest.approx(served_share([body(ask)["prompt"] for ask in made], block), abs=0.02)


def test_prefix_hit_rate_that_blocks_do_not_allow() -> None:
    """Prompts shorter than a block share nothing, which is said rather than done."""
    workload = SyntheticWorkload(name="x", input_tokens=100, output_tokens=1, prefix_hit_rate=0.5)
    vocabulary = replace(UNKNOWN, block_tokens=128)

    with pytest.raises(WorkloadError, match=r"blocks of 128 tokens.*100 tokens reach 0\.00 at most"):
        make(workload, "m", vocabulary, number=20, seed=0, salt="s")


def test_another_run_shares_no_beginning() -> None:
    """What a run's requests share is its own: the cache of the run before serves none of it."""
    workload = SyntheticWorkload(name="x", input_tokens=64, output_tokens=1, prefix_hit_rate=0.5)
    first, second = (body(prompts(workload, salt=salt).templates[0])["prompt"] for salt in ("a", "b"))

    assert first[:16] != second[:16]
