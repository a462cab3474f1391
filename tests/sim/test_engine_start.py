"""The start of a simulated engine: its log by release, and every way in which it does not start."""

import subprocess
import sys
from pathlib import Path

import pytest
from running_engine import StartEngine, free_port

from tokenpeak.vllm.startup_log import classify_failure, startup_facts


@pytest.mark.parametrize("version", ["0.8.5", "0.24.0", "0.33.0"])
def test_the_log_says_what_each_releases_log_says(start_engine: StartEngine, version: str) -> None:
    """KV cache, concurrency, weights and version are found in the log of any release, and fit each other."""
    engine = start_engine("--max-model-len", "8192", version=version).wait_ready()
    facts = startup_facts(engine.log)

    assert version == facts.engine_version
    assert version == engine.get("/version").json()["version"]
    assert facts.kv_cache_tokens and facts.max_concurrency and facts.weights_bytes and facts.kv_cache_bytes
    assert facts.max_concurrency == pytest.approx(facts.kv_cache_tokens / 8192, abs=0.01)
    assert facts.kv_cache_bytes / facts.kv_cache_tokens == pytest.approx(2 * 32 * 8 * 128 * 2, rel=0.01)
    assert facts.weights_bytes == pytest.approx(8.03e9 * 2, rel=0.01)
    assert facts.engine_choices.items() >= {"kv_cache_dtype": "auto", "enable_prefix_caching": "on"}.items()
    assert facts.engine_choices["attention_backend"] in ("FLASH_ATTN", "Flash Attention")
    assert ("cudagraph_mode" in facts.engine_choices) == (version != "0.8.5")


@pytest.mark.parametrize(
    ("cause", "settings", "flags"),
    [
        ("kv_cache_too_small", {"gpu": "L4"}, ("--max-model-len", "131072")),
        ("out_of_memory", {"gpu": "T4"}, ("--dtype", "half", "--max-model-len", "4096")),
        ("context_too_long", {}, ("--max-model-len", "200000")),
        ("bad_flag_value", {}, ("--max-num-seqs", "512", "--max-num-batched-tokens", "256")),
        ("unknown_flag", {}, ("--swap-space", "4")),
    ],
)
def test_what_cannot_start_fails_as_vllm_does(
    start_engine: StartEngine, cause: str, settings: dict[str, str], flags: tuple[str, ...]
) -> None:
    """The process ends with a status and a log from which the cause is read."""
    engine = start_engine(*flags, **settings)
    status = engine.ended()
    failure = classify_failure(engine.log, phase="launch", exit_status=status, timed_out=False)

    assert (cause, True) == (failure.cause, status != 0), engine.log


def test_memory_that_another_engine_holds_is_missing(start_engine: StartEngine, tmp_path: Path) -> None:
    """On a node whose production still runs, a second engine is refused for lack of free memory."""
    node = str(tmp_path / "node")
    start_engine("--max-model-len", "8192", dir=node).wait_ready()
    second = start_engine("--max-model-len", "8192", dir=node)
    status = second.ended()
    failure = classify_failure(second.log, phase="launch", exit_status=status, timed_out=False)

    assert "vram_taken" == failure.cause, second.log


def test_sigterm_ends_it_quickly_and_well(start_engine: StartEngine) -> None:
    """Status 0, within two seconds, in mid-start too."""
    serving, starting = start_engine().wait_ready(), start_engine(start_s="60")
    while "Resolved architecture" not in starting.log:
        assert starting.process.poll() is None
    for engine in (serving, starting):
        engine.process.terminate()

    assert [0, 0] == [engine.ended(2.0) for engine in (serving, starting)]


def test_a_bad_environment_is_said_plainly() -> None:
    """An unknown fault or version: one sentence, status 1."""
    argv = [sys.executable, "-m", "tokenpeak.sim.engine", "serve", "m", "--port", str(free_port())]
    for name, value in (("TOKENPEAK_SIM_FAULT", "hang_at_strat"), ("TOKENPEAK_SIM_VERSION", "newest")):
        ended = subprocess.run(argv, env={name: value}, capture_output=True, text=True, check=False, timeout=20)

        assert (1, "") == (ended.returncode, ended.stdout)
        assert value in ended.stderr and "Traceback" not in ended.stderr
