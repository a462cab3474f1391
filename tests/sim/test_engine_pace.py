"""The simulated engine keeps the performance model's time, and shows what flags do to it.

Times are read from the engine's own metrics, which follow its timetable, so that a busy machine does not disturb them.
"""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from running_engine import MODEL, RunningEngine, StartEngine

from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.predict.model import model_facts
from tokenpeak.predict.physics import step_time_s

BODY = {"prompt": [1, 2, 3, 4], "max_tokens": 20, "ignore_eos": True}
SPECULATION = '{"method": "ngram", "num_speculative_tokens": 3}'


def complete(engine: RunningEngine, **changes: Any) -> httpx.Response:
    return engine.post("/v1/completions", body={**BODY, **changes}, timeout=30)


def total(engine: RunningEngine, name: str) -> float:
    """A counter or a histogram's sum, as /metrics shows it."""
    page = engine.get("/metrics").text
    return sum(float(value) for value in re.findall(rf"^vllm:{name}\{{[^}}]*\}} (\S+)$", page, re.MULTILINE))


def mean_itl_s(engine: RunningEngine) -> float:
    name = "inter_token_latency_seconds"
    return total(engine, f"{name}_sum") / total(engine, f"{name}_count")


def modelled_itl_s(**deployment: Any) -> float:
    model, gpu = model_facts(MODEL), gpu_facts("A100 80GB")
    assert model and gpu
    return step_time_s(
        Deployment(model=model, gpu=gpu, schedules_ahead=True, **deployment),
        decode_sequences=1,
        decode_context_tokens=14,
    ).total_s


@pytest.mark.parametrize(
    ("flags", "deployment", "settings"),
    [
        ((), {}, {}),
        (("--enforce-eager",), {"eager": True}, {}),
        (("--tensor-parallel-size", "2"), {"tensor_parallel": 2}, {"gpu_count": "2"}),
    ],
)
def test_a_stream_has_the_models_pace(
    start_engine: StartEngine, flags: tuple[str, ...], deployment: dict[str, Any], settings: dict[str, str]
) -> None:
    """With graphs, without them, and over two GPUs: each gap is the modelled step."""
    engine = start_engine(*flags, **settings).wait_ready()
    complete(engine)

    assert mean_itl_s(engine) == pytest.approx(modelled_itl_s(**deployment), rel=0.01)


def test_noise_is_there_only_when_asked_and_follows_the_seed(start_engine: StartEngine) -> None:
    """The same seed gives the same times, another one others, none the model's."""
    paces = []
    for settings in ({"noise": "0.1", "seed": "1"}, {"noise": "0.1", "seed": "1"}, {"noise": "0.1", "seed": "2"}):
        engine = start_engine(**settings).wait_ready()
        complete(engine)
        paces.append(mean_itl_s(engine))

    assert paces[0] == pytest.approx(paces[1], rel=1e-9)
    assert paces[0] != pytest.approx(paces[2], rel=1e-4)


def mean_queue_s(engine: RunningEngine) -> float:
    """Of requests that come one after another while a long answer is written: from arrival to their first step."""
    body = {**BODY, "max_tokens": 2000, "stream": True}
    with engine.client() as client, client.stream("POST", "/v1/completions", json=body) as long:
        # Kept: a stream whose lines nobody holds is closed.
        lines = long.iter_lines()
        next(lines)
        for seed in range(20):
            complete(engine, seed=seed, max_tokens=1)
    return total(engine, "request_queue_time_seconds_sum") / total(engine, "request_queue_time_seconds_count")


def test_an_engine_that_schedules_ahead_sees_a_request_one_step_later(start_engine: StartEngine) -> None:
    """The step after the current one is decided already when a request comes, which waits for it, too."""
    engines = [start_engine(flag).wait_ready() for flag in ("--no-async-scheduling", "--async-scheduling")]
    with ThreadPoolExecutor(2) as askers:
        at_once, ahead = askers.map(mean_queue_s, engines)

    assert ahead - at_once == pytest.approx(modelled_itl_s(), rel=0.5)


def test_the_api_server_takes_one_request_after_another(start_engine: StartEngine) -> None:
    """Of twenty requests sent at once, each waits 2.4 ms for each one before it, and for its own."""
    engine = start_engine("--max-num-seqs", "64").wait_ready()
    # Connected and written before, and sent by one thread: what is made between two of them is time between them.
    host, _, port = engine.url.removeprefix("http://").partition(":")
    sockets = [socket.create_connection((host, int(port)), timeout=30) for _ in range(20)]
    bodies = [json.dumps({"model": MODEL, **BODY, "seed": seed, "max_tokens": 1}).encode() for seed in range(20)]
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    for connection, request in zip(sockets, requests, strict=True):
        connection.sendall(request)
    for connection in sockets:
        assert b" 200 " in connection.recv(64)
        connection.close()

    assert total(engine, "request_queue_time_seconds_sum") / 20 > 0.6 * 10.5 * 0.0024


def test_a_shared_prompt_hits_the_prefix_cache(start_engine: StartEngine) -> None:
    """The second time, all but the last block of the prompt is cached, and the first token comes sooner."""
    engine = start_engine("--enable-prompt-tokens-details").wait_ready()
    prompt = list(range(4000))
    details = [complete(engine, prompt=prompt).json()["usage"]["prompt_tokens_details"] for _ in range(2)]

    assert [0, 3984] == [detail["cached_tokens"] for detail in details]
    assert 3984 == total(engine, "prefix_cache_hits_total")


def test_speculation_brings_several_tokens_an_event(start_engine: StartEngine) -> None:
    """Accepted drafts come in one event: fewer events than tokens, all tokens in usage."""
    engine = start_engine("--speculative-config", SPECULATION).wait_ready()
    answer = complete(engine, max_tokens=60, stream=True, stream_options={"include_usage": True}).text
    events = answer.count('"text":')

    assert '"completion_tokens":60' in answer
    assert 60 / 4 <= events < 40
    assert total(engine, "spec_decode_num_accepted_tokens_total") == pytest.approx(60 - events, abs=4)


def test_preemption_shows_when_the_cache_is_too_small(start_engine: StartEngine) -> None:
    """Two sequences that outgrow a cache of 40 blocks: one is preempted, both end."""
    engine = start_engine("--num-gpu-blocks-override", "40", "--max-model-len", "600").wait_ready()
    with ThreadPoolExecutor(2) as clients:
        answers = list(clients.map(lambda seed: complete(engine, prompt=[seed] * 250, max_tokens=90), (5, 6)))

    assert [90, 90] == [answer.json()["usage"]["completion_tokens"] for answer in answers]
    assert total(engine, "num_preemptions_total") >= 1


def test_a_slow_machine_takes_longer_for_each_step(start_engine: StartEngine) -> None:
    """At 80% of its speed the gap between tokens is a quarter longer, and nothing else is changed."""
    usual, slow = start_engine().wait_ready(), start_engine(speed="0.8").wait_ready()
    complete(usual)
    complete(slow)

    assert pytest.approx(1.25, rel=0.05) == mean_itl_s(slow) / mean_itl_s(usual)
