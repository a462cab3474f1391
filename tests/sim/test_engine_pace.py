"""The simulated engine keeps the performance model's time, and shows what flags do to it.

Times are read from the engine's own metrics, which follow its timetable, so that a busy machine does not disturb them.
"""

import re
from typing import Any

import httpx
import pytest
from running_engine import MODEL, RunningEngine, StartEngine

from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.predict.model import model_facts
from tokenpeak.predict.physics import step_time_s

BODY = {"prompt": [1, 2, 3, 4], "max_tokens": 20, "ignore_eos": True}


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


@pytest.mark.timing("the seconds between tokens that an engine plays")
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


def test_a_shared_prompt_hits_the_prefix_cache(start_engine: StartEngine) -> None:
    """The second time, all but the last block of the prompt is cached, and the first token comes sooner."""
    engine = start_engine("--enable-prompt-tokens-details").wait_ready()
    prompt = list(range(4000))
    details = [complete(engine, prompt=prompt).json()["usage"]["prompt_tokens_details"] for _ in range(2)]

    assert [0, 3984] == [detail["cached_tokens"] for detail in details]
    assert 3984 == total(engine, "prefix_cache_hits_total")
