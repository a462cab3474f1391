"""Broken behaviour on demand, as fault tests need it."""

import httpx
import pytest
from running_engine import StartEngine

from tokenpeak.vllm.startup_log import classify_failure

BODY = {"prompt": [1, 2, 3], "max_tokens": 20, "ignore_eos": True}


def test_a_start_can_run_out_of_memory(start_engine: StartEngine) -> None:
    """Torch's words, vLLM's ending."""
    engine = start_engine(fault="oom_at_start")
    status = engine.ended()

    assert "out_of_memory" == classify_failure(engine.log, phase="launch", exit_status=status, timed_out=False).cause


def test_a_running_engine_can_crash(start_engine: StartEngine) -> None:
    """The engine's process dies of a CUDA error, and the server with it."""
    engine = start_engine(fault="crash_after_requests:2").wait_ready()
    with pytest.raises(httpx.TransportError):
        while True:
            engine.post("/v1/completions", body=BODY, timeout=5)
    status = engine.ended()

    assert "crashed" == classify_failure(engine.log, phase="run", exit_status=status, timed_out=False).cause


def test_an_engine_can_survive_idle_and_die_under_load(start_engine: StartEngine) -> None:
    """One request at a time is answered; beside another it runs out of memory, as its log says."""
    engine = start_engine("--gpu-memory-utilization", "0.97", fault="oom_under_load:0.95").wait_ready()
    alone = [engine.post("/v1/completions", body=BODY, timeout=5).status_code for _ in range(2)]
    long = {**BODY, "max_tokens": 1000, "stream": True}
    with engine.client() as client, client.stream("POST", "/v1/completions", json=long) as stream:
        # Kept: a stream whose lines nobody holds is closed.
        lines = stream.iter_lines()
        next(lines)
        with pytest.raises(httpx.TransportError):
            engine.post("/v1/completions", body=BODY)
    status = engine.ended()

    assert [200, 200] == alone
    assert "out_of_memory" == classify_failure(engine.log, phase="run", exit_status=status, timed_out=False).cause
