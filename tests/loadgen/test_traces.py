"""Traces of each format: what is read of them, and what is replayed."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.prompts import make
from tokenpeak.loadgen.traces.formats import FORMATS
from tokenpeak.loadgen.traces.reading import read_trace
from tokenpeak.loadgen.traces.trace import Trace
from tokenpeak.loadgen.vocabulary import UNKNOWN
from tokenpeak.spec.workload import TraceWorkload

OWN = (
    '{"timestamp_s": 10, "input_tokens": 30, "output_tokens": 5}\n'
    '{"timestamp_s": 12.5, "input_tokens": 40, "output_tokens": 6, "session": "a"}\n'
)
MOONCAKE = (
    '{"timestamp": 10000, "input_length": 30, "output_length": 5, "hash_ids": [0]}\n'
    '{"timestamp": 12500, "input_length": 40, "output_length": 6, "hash_ids": [0]}\n'
)
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:10.0000000,30,5
2023-11-16 18:15:12.5000000,40,6
"""
BURST_GPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
10,ChatGPT,30,5,35,Conversation log
11,ChatGPT,99,0,99,Conversation log
12.5,GPT-4,40,6,46,API log
"""
AIPERF = "\n".join(
    json.dumps(
        {
            "metadata": {"request_start_ns": at, "benchmark_phase": phase, "conversation_id": f"c{at}"},
            "metrics": {
                "input_sequence_length": {"value": given, "unit": "tokens"},
                "output_sequence_length": {"value": made, "unit": "tokens"},
            },
            "error": None,
        }
    )
    for at, phase, given, made in (
        (1_000_000_000, "warmup", 7, 7),
        (10_000_000_000, "profiling", 30, 5),
        (12_500_000_000, "profiling", 40, 6),
    )
)
GUIDELLM = json.dumps(
    {
        "metadata": {"version": 1},
        "benchmarks": [
            {
                "requests": {
                    "successful": [
                        {"request_id": "x", "request_start_time": 12.5, "prompt_tokens": 40, "output_tokens": 6},
                        {"request_id": "y", "request_start_time": 10.0, "prompt_tokens": 30, "output_tokens": 5},
                    ],
                    "errored": [{"request_id": "z", "request_start_time": 11.0, "prompt_tokens": 3}],
                }
            }
        ],
    },
    indent=1,
)


def _span(begin_ns: int, attributes: dict[str, int | str]) -> dict[str, Any]:
    return {
        "name": "chat m",
        "startTimeUnixNano": str(begin_ns),
        "attributes": [
            {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
            for key, value in attributes.items()
        ],
    }


SPANS = json.dumps(
    {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            _span(5, {"http.method": "POST"}),
                            _span(10 * 10**9, {"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 5}),
                            _span(
                                12_500_000_000,
                                {
                                    "gen_ai.usage.input_tokens": 40,
                                    "gen_ai.usage.output_tokens": 6,
                                    "gen_ai.conversation.id": "c",
                                },
                            ),
                        ]
                    }
                ]
            }
        ]
    }
)
COMPLETIONS = "\n".join(
    json.dumps({"id": "x", "created": at, "usage": {"prompt_tokens": given, "completion_tokens": made}})
    for at, given, made in ((10, 30, 5), (12.5, 40, 6))
)
GATEWAY = "\n".join(
    json.dumps(
        {
            "timestamp": at,
            "request": {"messages": [{"role": "user", "content": "secret"}]},
            "response": {"usage": {"prompt_tokens": given, "completion_tokens": made}},
        }
    )
    for at, given, made in (("2026-01-01T00:00:10Z", 30, 5), ("2026-01-01T00:00:12.5Z", 40, 6))
)
FILES = {
    "own.jsonl": OWN,
    "mooncake.jsonl": MOONCAKE,
    "azure.csv": AZURE,
    "burst.csv": BURST_GPT,
    "profile_export.jsonl": AIPERF,
    "benchmarks.json": GUIDELLM,
    "spans.json": SPANS,
    "completions.jsonl": COMPLETIONS,
    "gateway.jsonl": GATEWAY,
}


def read(path: Path, text: str, **keys: object) -> Trace:
    path.write_text(text)
    return read_trace(TraceWorkload.model_validate({"kind": "trace", "name": "x", "path": str(path), **keys}))


def figures(trace: Trace) -> list[tuple[float, int, int]]:
    return [(entry.due_s, entry.input_tokens, entry.output_tokens) for entry in trace.entries]


@pytest.mark.parametrize("name", FILES)
def test_formats(name: str, tmp_path: Path) -> None:
    """The same two requests from each format: 2.5 s apart, whatever its unit of time; what failed is no request."""
    assert figures(read(tmp_path / name, FILES[name])) == [(0.0, 30, 5), (2.5, 40, 6)]


def test_each_format_has_a_file_here() -> None:
    """No format is read that is not tried."""
    marked = {
        kind.name
        for kind in FORMATS
        for text in FILES.values()
        if all(mark.rsplit("/", 1)[-1] in text for mark in kind.marks)
    }
    assert marked == {kind.name for kind in FORMATS}


def test_packed_trace(tmp_path: Path) -> None:
    """A trace may be packed."""
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode()))

    assert len(read_trace(TraceWorkload(name="x", path=str(path))).entries) == 2


def _log(ids: list[list[int]], answers: list[int]) -> str:
    """A log of requests at the level DEBUG, as vLLM 0.32 writes it; two requests in one second, the third later."""
    lines = []
    for number, prompt in enumerate(ids):
        begin = f"11-26 10:00:0{number // 2} [request_logger.py:"
        lines += [
            f"DEBUG {begin}60] Request cmpl-{number}-0 details: prompt: 'x: y', prompt_token_ids: {prompt}, "
            "prompt_embeds shape: None.",
            f"INFO {begin}70] Received request cmpl-{number}-0: params: SamplingParams(n=1, max_tokens=99, seed=None), "
            "lora_request: None.",
        ]
    lines += [
        f"DEBUG 11-26 10:00:09 [request_logger.py:110] Generated response cmpl-{number} (streaming complete) details: "
        f"output_token_ids: {list(range(tokens))}"
        for number, tokens in enumerate(answers)
    ]
    return "\n".join(lines)


def test_log_of_requests(tmp_path: Path) -> None:
    """Lengths are those of the ids; two requests of one second are half a second apart; what is shared is known."""
    begin = list(range(100, 132))
    trace = read(tmp_path / "vllm.log", _log([[*begin, 1], [*begin, 2, 3], [7, *begin]], [4, 5, 6]))

    assert figures(trace) == [(0.0, 33, 4), (0.5, 34, 5), (1.0, 33, 6)]
    assert trace.prefix_hit_rate(16) == pytest.approx(32 / 100)


def test_log_of_requests_before_0_11(tmp_path: Path) -> None:
    """Older releases wrote ids into the one line; an answer without ids is as long as it was allowed to be."""
    line = (
        "INFO 03-01 00:00:01 [logger.py:39] Received request cmpl-a-0: prompt: 'hello', params: SamplingParams(n=1, "
        "max_tokens=12, min_tokens=0), prompt_token_ids: [1, 2, 3], lora_request: None, prompt_adapter_request: None."
    )
    assert figures(read(tmp_path / "old.log", line)) == [(0.0, 3, 12)]


def test_no_text_of_a_prompt_is_kept(tmp_path: Path) -> None:
    """Of prompts there is nothing in what was read, and nothing in what is sent."""
    path = tmp_path / "gateway.jsonl"
    trace = read(path, GATEWAY)
    made = make(TraceWorkload(name="x", path=str(path)), "m", UNKNOWN, number=2, seed=0, salt="s")

    assert "secret" not in repr(trace)
    assert not any(b"secret" in template.prefix + template.suffix for template in made.templates)


def shared_by(prompts: list[list[int]], block: int) -> float:
    """The share of tokens that a cache of whole blocks has, by the tokens themselves; the last is always computed."""
    known: set[tuple[int, ...]] = set()
    hits = 0
    for prompt in prompts:
        blocks = 0
        while (blocks + 1) * block < len(prompt) and tuple(prompt[: (blocks + 1) * block]) in known:
            blocks += 1
        hits += blocks * block
        known |= {tuple(prompt[: end * block]) for end in range(1, len(prompt) // block + 1)}
    return hits / sum(map(len, prompts))


def mooncake(random: np.random.Generator, number: int) -> str:
    """Chats that grow, with one of three beginnings; blocks of 512 tokens, the last of each prompt shorter."""
    chats: list[tuple[list[int], int]] = []
    rows, fresh = [], 100
    for at in range(number):
        if chats and random.random() < 0.6:
            which = int(random.integers(len(chats)))
            ids, tokens = chats[which]
        else:
            which, ids, tokens = len(chats), [int(random.integers(3))], 512
            chats.append((ids, tokens))
        ids, tokens = list(ids[: tokens // 512]), tokens + int(random.integers(200, 900))
        while len(ids) * 512 < tokens:
            ids.append(fresh)
            fresh += 1
        chats[which] = (ids, tokens)
        rows.append({"timestamp": at * 100, "input_length": tokens, "output_length": 3, "hash_ids": ids})
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_prompts_share_what_the_trace_says(endpoint: str, tmp_path: Path) -> None:
    """The prompts that are sent hit a cache as often as the trace's blocks imply, counted over the tokens sent."""
    path = tmp_path / "mooncake.jsonl"
    trace = read(path, mooncake(np.random.default_rng(1), 60))
    workload = TraceWorkload.model_validate({"name": "x", "path": str(path), "endpoint": endpoint})
    made = [
        json.loads(each.prefix + each.salt + each.suffix)
        for each in make(workload, "m", UNKNOWN, number=None, seed=0, salt="s").templates
    ]
    if endpoint == "chat":
        words: dict[str, int] = {}
        texts = [each["messages"][0]["content"].split() for each in made]
        sent = [[words.setdefault(word, len(words)) for word in text] for text in texts]
    else:
        sent = [each["prompt"] for each in made]

    assert [len(prompt) for prompt in sent] == [entry.input_tokens for entry in trace.entries]
    assert shared_by(sent, 16) == pytest.approx(trace.prefix_hit_rate(16), abs=1e-9)
    assert 0.3 < trace.prefix_hit_rate(16) < 0.9


def test_sessions_grow(tmp_path: Path) -> None:
    """Requests of one session begin alike as far as the shorter goes; those of two share nothing."""
    rows = [
        {"timestamp_s": at, "input_tokens": tokens, "output_tokens": 1, "session": session}
        for at, (tokens, session) in enumerate([(64, "a"), (64, "b"), (128, "a"), (96, "b")])
    ]
    path = tmp_path / "sessions.jsonl"
    trace = read(path, "\n".join(map(json.dumps, rows)))
    made = make(TraceWorkload(name="x", path=str(path)), "m", UNKNOWN, number=None, seed=0, salt="s")
    sent = [json.loads(each.prefix + each.salt + each.suffix)["prompt"] for each in made.templates]

    assert sent[2][:64] == sent[0]
    assert sent[3][:64] == sent[1]
    assert sent[0][:8] != sent[1][:8]
    assert trace.prefix_hit_rate(16) == pytest.approx(128 / 352)


def test_window_and_speed(tmp_path: Path) -> None:
    """A window counts in the trace's own seconds; what is within begins at 0 and goes at the speed."""
    rows = "\n".join(json.dumps({"timestamp_s": 100 + at, "input_tokens": 8, "output_tokens": 1}) for at in range(10))

    assert figures(read(tmp_path / "t.jsonl", rows, begin_s=3, end_s=6, speed=2)) == [
        (0.0, 8, 1),
        (0.5, 8, 1),
        (1.0, 8, 1),
    ]


@pytest.mark.parametrize("scale", [0.5, 1.5, 3.0])
def test_copies(scale: float, tmp_path: Path) -> None:
    """So many times the requests, in the same time, sharing the same part of their tokens."""
    text = mooncake(np.random.default_rng(2), 600)
    whole, scaled = read(tmp_path / "t.jsonl", text), read(tmp_path / "t.jsonl", text, scale=scale)

    assert len(scaled.entries) == pytest.approx(scale * len(whole.entries), rel=0.25 if scale < 3 else 0)
    assert scaled.entries[-1].due_s == pytest.approx(whole.entries[-1].due_s, rel=0.1)
    assert scaled.prefix_hit_rate(16) == pytest.approx(whole.prefix_hit_rate(16), abs=0.1)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"time": 3}', "is no trace that is known here"),
        ("a.csv", "", "is no trace that is known here"),
        ("a.jsonl", '{"timestamp_s": 1, "input_tokens": 3}\n', "is no trace that is known here"),
        ("a.jsonl", OWN + '{"timestamp_s": 1, "input_tokens": "many", "output_tokens": 1}', "entry 3"),
        ("a.jsonl", OWN.replace("30", "3e12"), "beyond 1,000,000,000"),
        ("a.csv", AZURE.replace("2023-11-16", "yesterday"), "entry 1"),
        ("a.csv", BURST_GPT.replace(",5,", ",0,").replace(",6,", ",0,"), "no request with lengths"),
        ("a.csv.gz", AZURE, "is not a whole gzip file"),
    ],
)
def test_mistakes(name: str, text: str, words: str, tmp_path: Path) -> None:
    """What cannot be read is said with the file, and the row where one is meant."""
    with pytest.raises(WorkloadError, match=words):
        read(tmp_path / name, text)


def test_window_without_requests(tmp_path: Path) -> None:
    """A window that holds nothing says how long the trace is."""
    with pytest.raises(WorkloadError, match=r"takes 2\.5 s"):
        read(tmp_path / "own.jsonl", OWN, begin_s=60, end_s=90)
