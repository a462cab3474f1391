"""Broken behaviour on demand, as fault tests need it."""

import os
import signal
import time
from pathlib import Path

import httpx
import pytest
from running_engine import StartEngine

from tokenpeak.sim.boards import NodeState
from tokenpeak.vllm.startup_log import classify_failure

BODY = {"prompt": [1, 2, 3], "max_tokens": 20, "ignore_eos": True}


def test_a_start_can_hang(start_engine: StartEngine) -> None:
    """It goes on, says nothing more and never answers."""
    engine = start_engine(fault="hang_at_start")
    with pytest.raises(AssertionError, match="not ready"):
        engine.wait_ready(1.0)

    assert engine.process.poll() is None


def test_a_start_can_run_out_of_memory(start_engine: StartEngine) -> None:
    """Torch's words, vLLM's ending."""
    engine = start_engine(fault="oom_at_start")
    status = engine.ended()

    assert "out_of_memory" == classify_failure(engine.log, phase="launch", exit_status=status, timed_out=False).cause


def test_a_start_can_crash(start_engine: StartEngine) -> None:
    """Ended by a signal of its own."""
    engine = start_engine(fault="crash_at_start")

    assert -signal.SIGABRT == engine.ended()


@pytest.mark.parametrize("fault", ["crash_after_requests:2", "crash_after_s:0.5"])
def test_a_running_engine_can_crash(start_engine: StartEngine, fault: str) -> None:
    """The engine's process dies of a CUDA error, and the server with it."""
    engine = start_engine(fault=fault).wait_ready()
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


def test_sigterm_can_be_ignored(start_engine: StartEngine) -> None:
    """It goes on serving; only a kill ends it."""
    engine = start_engine(fault="ignore_sigterm").wait_ready()
    engine.process.terminate()
    time.sleep(0.2)

    assert 200 == engine.get("/health").status_code
    engine.process.kill()
    assert -signal.SIGKILL == engine.ended()


def test_a_stream_can_stall(start_engine: StartEngine) -> None:
    """After so many tokens nothing more comes, and the connection stays open."""
    engine = start_engine(fault="stall_mid_stream:5").wait_ready()
    received = 0
    with (
        pytest.raises(httpx.ReadTimeout),
        engine.client() as client,
        client.stream("POST", "/v1/completions", json={**BODY, "stream": True}, timeout=1.0) as stream,
    ):
        for line in stream.iter_lines():
            received += line.startswith("data: {")

    assert 5 == received


def test_requests_can_fail(start_engine: StartEngine) -> None:
    """Every second one with status 500."""
    engine = start_engine(fault="error_500:2").wait_ready()
    statuses = [engine.post("/v1/completions", body=BODY, timeout=5).status_code for _ in range(4)]

    assert [200, 500, 200, 500] == statuses


def test_memory_can_be_released_slowly(start_engine: StartEngine, tmp_path: Path) -> None:
    """The engine has ended and its memory is still taken, for as long as asked."""
    engine = start_engine("--max-model-len", "8192", fault="slow_release:1", dir=str(tmp_path)).wait_ready()
    engine.process.terminate()
    engine.ended()
    state = NodeState(tmp_path)

    assert state.vram_held(0) > 0
    deadline = time.monotonic() + 5
    while state.vram_held(0) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert 0 == state.vram_held(0)


def test_a_worker_can_outlive_its_engine(start_engine: StartEngine, tmp_path: Path) -> None:
    """Killing the engine leaves a process in a session of its own, and the memory with it."""
    engine = start_engine("--max-model-len", "8192", fault="orphan_worker", dir=str(tmp_path)).wait_ready()
    engine.process.kill()
    engine.ended()
    left = NodeState(tmp_path).holders()

    assert ["VLLM::Worker_TP0"] == [holder.name for holder in left]
    os.kill(left[0].pid, signal.SIGKILL)
