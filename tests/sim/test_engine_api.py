"""What the simulated engine answers, held against what vLLM 0.32.0 was recorded to answer."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_engine import RunningEngine, StartEngine

RECORDED = Path(__file__).parent / "recorded" / "vllm-0.32.0"
KEY = {"authorization": "Bearer secret"}
COMPLETION = {"model": "tiny", "prompt": [5, 6, 7, 8], "max_tokens": 5, "ignore_eos": True}
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 5,
    "ignore_eos": True,
}
VARYING = ("id", "created", "text", "content", "system_fingerprint", "root", "max_model_len")


@pytest.fixture(scope="module")
def engine(start_shared_engine: StartEngine) -> RunningEngine:
    """An engine as the recorded one was started."""
    flags = ("--served-model-name", "tiny", "--max-model-len", "4096", "--enable-prompt-tokens-details")
    return start_shared_engine(*flags, VLLM_API_KEY="secret").wait_ready()


def post(engine: RunningEngine, path: str, body: dict[str, Any]) -> httpx.Response:
    return engine.post(path, body, headers=KEY, timeout=20)


def shape(value: Any, key: str = "") -> Any:
    """The body with what differs from one answer to the next replaced by its type; the order of keys is kept."""
    if isinstance(value, dict):
        return [(name, shape(item, name)) for name, item in value.items()]
    if isinstance(value, list):
        return [shape(item, key) for item in value]
    return type(value).__name__ if key in VARYING else value


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def recorded(name: str) -> Any:
    text = (RECORDED / name).read_text()
    return [shape(event) for event in events(text)] if name.endswith(".sse") else shape(json.loads(text))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("completion-stream-usage.sse", {"stream_options": {"include_usage": True}}),
        ("completion-stream.sse", {"max_tokens": 3}),
    ],
)
def test_a_streamed_completion_has_vllms_events(engine: RunningEngine, name: str, body: dict[str, Any]) -> None:
    """Key for key and in order, down to the last event and [DONE]."""
    answer = post(engine, "/v1/completions", {**COMPLETION, "stream": True, **body})

    assert recorded(name) == [shape(event) for event in events(answer.text)]
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "text/event-stream; charset=utf-8" == answer.headers["content-type"]


def test_a_streamed_chat_has_vllms_events(engine: RunningEngine) -> None:
    """The role first, then the text, and in the last event the reason."""
    answer = post(engine, "/v1/chat/completions", {**CHAT, "max_completion_tokens": 3, "stream": True})

    assert recorded("chat-stream.sse") == [shape(event) for event in events(answer.text)]


def test_a_whole_completion_has_vllms_body(engine: RunningEngine) -> None:
    """Without stream there is one body."""
    body = post(engine, "/v1/completions", {**COMPLETION, "prompt": [5, 6, 7, 8, 9]}).json()

    assert recorded("completion.json") == shape(body)


def test_a_whole_chat_has_vllms_body(engine: RunningEngine) -> None:
    """Key for key, but for the count of the template's tokens, which are the tokenizer's."""
    body = post(engine, "/v1/chat/completions", CHAT).json()
    expected = json.loads((RECORDED / "chat.json").read_text())
    expected["usage"] = body["usage"]

    assert shape(expected) == shape(body)


@pytest.mark.parametrize(
    ("name", "status", "body"),
    [
        ("error-model.json", 404, {"model": "nope"}),
        ("error-prompt-too-long.json", 400, {"prompt": [1] * 4482}),
        ("error-no-tokens.json", 400, {"max_tokens": 0}),
        ("error-no-prompt.json", 400, {"prompt": None}),
    ],
)
def test_what_vllm_refuses_is_refused_in_its_words(
    engine: RunningEngine, name: str, status: int, body: dict[str, Any]
) -> None:
    """Status, message, type, parameter and code are vLLM's."""
    answer = post(engine, "/v1/completions", {**COMPLETION, **body})

    assert (status, json.loads((RECORDED / name).read_text())) == (answer.status_code, answer.json())


def test_the_api_key_guards_v1_only(engine: RunningEngine) -> None:
    """Without the key /v1 is closed; /metrics and /health are open."""
    refused = engine.get("/v1/models")

    assert (401, json.loads((RECORDED / "error-no-key.json").read_text())) == (refused.status_code, refused.json())
    assert 200 == engine.get("/metrics").status_code


def test_adapters_are_listed_below_their_model_and_answer(start_engine: StartEngine) -> None:
    """Given as NAME=PATH or as JSON; another name is refused."""
    modules = ("--lora-modules", "sql=/adapters/sql", '{"name": "tickets", "path": "/adapters/tickets"}')
    engine = start_engine("--served-model-name", "tiny", "--enable-lora", *modules).wait_ready()
    listed = {each["id"]: each["parent"] for each in engine.get("/v1/models").json()["data"]}
    asked = {name: engine.post("/v1/completions", {**COMPLETION, "model": name}) for name in ("sql", "nope")}

    assert {"tiny": None, "sql": "tiny", "tickets": "tiny"} == listed
    assert {"sql": 200, "nope": 404} == {name: answer.status_code for name, answer in asked.items()}


def test_metrics_have_vllms_names_and_labels(engine: RunningEngine) -> None:
    """Every series is one of vLLM 0.32.0's, with its labels."""
    post(engine, "/v1/completions", COMPLETION)
    page = engine.get("/metrics").text
    found = set()
    for line in page.splitlines():
        if match := re.match(r"(vllm:\w+)\{(.*)\} ", line):
            labels = ",".join(sorted(re.findall(r"(\w+)=", match[2])))
            found.add(f"{match[1]} {labels}")
    recorded_names = set((RECORDED / "metric-names.txt").read_text().splitlines())

    assert found <= recorded_names
    assert {"vllm:kv_cache_usage_perc engine,model_name", "vllm:prefix_cache_hits_total engine,model_name"} <= found


def test_a_client_that_leaves_frees_its_place(engine: RunningEngine) -> None:
    """A stream that is broken off is aborted: nothing goes on running."""
    body = {**COMPLETION, "max_tokens": 4000, "stream": True}
    with engine.client() as client, client.stream("POST", "/v1/completions", json=body, headers=KEY) as stream:
        next(stream.iter_lines())
    for _ in range(100):
        page = engine.get("/metrics").text
        if "vllm:num_requests_running{" in page and re.search(r"num_requests_running\{[^}]*\} 0\.0", page):
            break

    assert re.search(r"num_requests_running\{[^}]*\} 0\.0", page)
